"""Endpoints of the service, its chains and its deployments."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import Response

from api.histories import (
    PinnedChain,
    ServedDeployment,
    chain_head,
    chain_response,
    deployment_details,
    deployment_path,
    deployment_summary,
    stage_name,
)
from api.http.answers import HOST_NOT_SERVED, REQUEST_INVALID, AnyChain
from api.http.openapi import OF_CHAIN, OF_DEPLOYMENT, OF_DEPLOYMENTS
from api.http.parameters import Address, Endpoints, OneChain
from api.routes.runs import federations_of
from api.schemas import (
    ChainsAnswer,
    DeploymentAnswer,
    DeploymentsAnswer,
    DeploymentStatus,
    Health,
    Ready,
    StatusAnswer,
)
from ledger.chain.contract import abi
from ledger.protocol.types import PROTOCOL_VERSION

_service = Endpoints("", "service")
_deployments = Endpoints("/v1/chains/{chain}/deployments", "deployments")


@_service.answers(
    "/health", "Is the process up", Health, (REQUEST_INVALID, HOST_NOT_SERVED), tagged=False
)
async def check_health() -> Response:
    """Answer if the process is up, independently of the chain."""
    return _uncached(Health())


@_service.answers("/ready", "Can the chain be read", Ready, OF_CHAIN, tagged=False)
def check_readiness(reading: AnyChain) -> Response:
    """Answer 503 until the chain can be read: the service may start before the first run."""
    return _uncached(Ready(as_of=reading.as_of))


def _uncached(answer: Health | Ready) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(answer.model_dump_json(), 200, headers, "application/json")


@_service.answers("/v1/status", "Chain, deployments and versions", StatusAnswer, OF_CHAIN)
def read_status(reading: AnyChain) -> Response:
    """Return the chain's head, the status of each deployment, and the refused manifests."""
    chain = reading.chain
    served, refused = chain.deployments.all()
    answer: StatusAnswer = {
        "chain": chain_head(chain),
        "deployments": [_deployment_status(chain, deployment) for deployment in served],
        "refused": refused,
        "versions": {
            "package": package_version(),
            "protocol": PROTOCOL_VERSION,
            "compiler": abi.artifact().compiler,
        },
    }
    return reading.respond(answer)


def _deployment_status(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentStatus:
    state = chain.state(deployment)
    return {
        "address": deployment.manifest.address,
        "run": deployment.run,
        "stage": stage_name(state.stage),
        "round": state.round,
        "rounds": deployment.fixed.rounds,
        "links": deployment_path(chain, deployment).links(),
    }


@_service.answers("/v1/chains", "The chains that are served", ChainsAnswer, OF_CHAIN)
def list_chains(reading: AnyChain) -> Response:
    """List the chains by their names, which all paths below them contain.

    A contract has the same address in every fresh home, so a chain's name holds its id and the
    beginning of its block 0's hash: a cached answer of one chain is never taken for another's.
    """
    return reading.respond({"chains": [chain_response(reading.chain)]})


def package_version() -> str:
    """Return the version of cmfl-ledger."""
    try:
        return version("cmfl-ledger")
    except PackageNotFoundError:
        return "unknown"


@_deployments.answers("", "All deployments", DeploymentsAnswer, OF_DEPLOYMENTS)
def list_deployments(reading: OneChain) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.chain.deployments.all()
    summaries = [deployment_summary(reading.chain, deployment) for deployment in served]
    return reading.respond({"deployments": summaries})


@_deployments.answers("/{address}", "One deployment", DeploymentAnswer, OF_DEPLOYMENT)
def read_deployment(reading: OneChain, address: Address) -> Response:
    """Return the fixed parameters of a deployment and the state of its contract.

    The configuration's blob is found by its digest; that contract and configuration agree is not
    verified here.
    """
    details = deployment_details(reading.chain, reading.deployment(address))
    if federations_of(reading.request).is_enabled:
        details["links"]["federation"] = f"{details['links']['self']}/federation"
    return reading.respond(details)


ROUTES = [*_service.routes, *_deployments.routes]
