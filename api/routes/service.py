"""Endpoints of the service, its chains and its deployments."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from api.http.answers import HOST_NOT_SERVED, REQUEST_INVALID, AnyChain, respond
from api.http.openapi import OF_CHAIN, OF_DEPLOYMENT, OF_DEPLOYMENTS, declared
from api.http.parameters import Address, OneChain, refuse_unknown
from api.routes.live import federations_of
from api.schemas.service import DeploymentStatus, Health, Ready, ServiceStatus, StatusAnswer
from ledger.chain.contract import abi
from ledger.history.answers import ChainsAnswer, DeploymentAnswer, DeploymentsAnswer
from ledger.history.serialise import (
    chain_head,
    chain_response,
    deployment_details,
    deployment_list,
    deployment_path,
    stage_name,
)
from ledger.protocol.types import PROTOCOL_VERSION

if TYPE_CHECKING:
    from ledger.history.deployments import PinnedChain, ServedDeployment


service_router = APIRouter(tags=["service"], dependencies=[Depends(refuse_unknown)])


@service_router.get(
    "/health",
    summary="Is the process up",
    operation_id="check_health",
    response_model=Health,
    responses=declared(REQUEST_INVALID, HOST_NOT_SERVED, tagged=False),
)
async def health() -> Response:
    """Answer if the process is up, independently of the chain."""
    return Response(
        Health().model_dump_json(), 200, {"Cache-Control": "no-store"}, "application/json"
    )


@service_router.get(
    "/ready",
    summary="Can the chain be read",
    operation_id="check_readiness",
    response_model=Ready,
    responses=declared(*OF_CHAIN, tagged=False),
)
def ready(reading: AnyChain) -> Response:
    """Answer 503 until the chain can be read: the service may start before the first run."""
    body = Ready(as_of=reading.as_of).model_dump_json()
    return Response(body, 200, {"Cache-Control": "no-store"}, "application/json")


@service_router.get(
    "/v1/status",
    summary="Chain, deployments and versions",
    operation_id="read_status",
    response_model=StatusAnswer,
    responses=declared(*OF_CHAIN),
)
def status(request: Request, reading: AnyChain) -> Response:
    """Return the chain's head, the status of each deployment, and the refused manifests."""
    chain = reading.chain
    served, refused = chain.deployments()
    response: ServiceStatus = {
        "chain": chain_head(chain),
        "deployments": [_deployment_status(chain, deployment) for deployment in served],
        "refused": [
            {"manifest": manifest.manifest, "reason": manifest.reason} for manifest in refused
        ],
        "versions": {
            "package": package_version(),
            "protocol": PROTOCOL_VERSION,
            "compiler": abi.artifact().compiler,
        },
    }
    return respond(request, reading, response)


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


@service_router.get(
    "/v1/chains",
    summary="The chains that are served",
    operation_id="list_chains",
    response_model=ChainsAnswer,
    responses=declared(*OF_CHAIN),
)
def chains(request: Request, reading: AnyChain) -> Response:
    """List the chains by their names, which all paths below them contain.

    A contract has the same address in every fresh home, so a chain's name holds its id and the
    beginning of its block 0's hash: a cached answer of one chain is never taken for another's.
    """
    return respond(request, reading, {"chains": [chain_response(reading.chain)]})


def package_version() -> str:
    """Return this package's version."""
    try:
        return version("cmfl-ledger")
    except PackageNotFoundError:
        return "unknown"


deployments_router = APIRouter(
    prefix="/v1/chains/{chain}/deployments",
    tags=["deployments"],
    dependencies=[Depends(refuse_unknown)],
)


@deployments_router.get(
    "",
    summary="All deployments",
    operation_id="list_deployments",
    response_model=DeploymentsAnswer,
    responses=declared(*OF_DEPLOYMENTS),
)
def deployments(request: Request, reading: OneChain) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.chain.deployments()
    return respond(request, reading, deployment_list(reading.chain, served))


@deployments_router.get(
    "/{address}",
    summary="One deployment",
    operation_id="read_deployment",
    response_model=DeploymentAnswer,
    responses=declared(*OF_DEPLOYMENT),
)
def deployment(request: Request, reading: OneChain, address: Address) -> Response:
    """Return the fixed parameters of a deployment and the state of its contract.

    The configuration's blob is found by its digest; that contract and configuration agree is not
    verified here.
    """
    details = deployment_details(reading.chain, reading.deployment(address))
    if federations_of(request).is_enabled:
        details["links"]["federation"] = f"{details['links']['self']}/federation"
    return respond(request, reading, details)
