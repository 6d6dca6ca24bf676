"""Endpoints of the service, its chains and its deployments."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

from fastapi import Response

from api import schemas
from api.histories import PinnedChain, ServedDeployment, stage_name
from api.http.answers import HOST_NOT_SERVED, REQUEST_INVALID, AnyChain
from api.http.endpoints import OF_CHAIN, OF_DEPLOYMENT, OF_DEPLOYMENTS, Address, Endpoints, OneChain
from api.routes.runs import federations_of
from ledger.chain.contract import abi
from ledger.history.fields import DeploymentPath, code_of, picked, time_of
from ledger.history.round import read_run
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import STRATEGIES, accepted_size
from ledger.protocol.payloads import FLOAT32
from ledger.protocol.rules.distance import DIRECTION
from ledger.protocol.types import PROTOCOL_VERSION, Digest
from ledger.storage.blobs import BlobReader

A = TypeVar("A")

_service = Endpoints("", "service")
_deployments = Endpoints("/v1/chains/{chain}/deployments", "deployments")


@_service.answers(
    "/health", "Is the process up", schemas.Health, (REQUEST_INVALID, HOST_NOT_SERVED), tagged=False
)
async def check_health() -> Response:
    """Answer if the process is up, independently of the chain."""
    return _uncached(schemas.Health())


@_service.answers("/ready", "Can the chain be read", schemas.Ready, OF_CHAIN, tagged=False)
def check_readiness(reading: AnyChain) -> Response:
    """Answer 503 until the chain can be read: the service may start before the first run."""
    return _uncached(schemas.Ready(as_of=reading.as_of))


def _uncached(answer: schemas.Health | schemas.Ready) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(answer.model_dump_json(), 200, headers, "application/json")


@_service.answers("/v1/status", "Chain, deployments and versions", schemas.StatusAnswer, OF_CHAIN)
def read_status(reading: AnyChain) -> Response:
    """Return the chain's head, the status of each deployment, and the refused manifests."""
    chain = reading.chain
    served, refused = chain.deployments.all()

    def status_of(deployment: ServedDeployment) -> schemas.DeploymentStatus:
        state = chain.state(deployment)
        given = {"stage": stage_name(state.stage), "rounds": deployment.fixed.rounds}
        return _answer(schemas.DeploymentStatus, state, **given, **_of(chain, deployment))

    answer: schemas.StatusAnswer = {
        "chain": {
            **_chain_response(chain),
            "number": chain.block.number,
            "hash": to_hex(chain.block.hash),
            **time_of(chain.block.timestamp),
        },
        "deployments": [status_of(deployment) for deployment in served],
        "refused": refused,
        "versions": {
            "package": package_version(),
            "protocol": PROTOCOL_VERSION,
            "compiler": abi.artifact().compiler,
        },
    }
    return reading.respond(answer)


@_service.answers("/v1/chains", "The chains that are served", schemas.ChainsAnswer, OF_CHAIN)
def list_chains(reading: AnyChain) -> Response:
    """List the chains by their names, which all paths below them contain.

    A contract has the same address in every fresh home, so a chain's name holds its id and the
    beginning of its block 0's hash: a cached answer of one chain is never taken for another's.
    """
    return reading.respond({"chains": [_chain_response(reading.chain)]})


def package_version() -> str:
    """Return the version of cmfl-ledger."""
    try:
        return version("cmfl-ledger")
    except PackageNotFoundError:
        return "unknown"


@_deployments.answers("", "All deployments", schemas.DeploymentsAnswer, OF_DEPLOYMENTS)
def list_deployments(reading: OneChain) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.chain.deployments.all()
    summaries = [
        _answer(
            schemas.DeploymentSummary,
            each.fixed,
            sizes=_sizes(each.fixed),
            **_of(reading.chain, each),
        )
        for each in served
    ]
    return reading.respond({"deployments": summaries})


@_deployments.answers("/{address}", "One deployment", schemas.DeploymentAnswer, OF_DEPLOYMENT)
def read_deployment(reading: OneChain, address: Address) -> Response:
    """Return the fixed parameters of a deployment and the state of its contract.

    The configuration's blob is found by its digest; that contract and configuration agree is not
    verified here.
    """
    chain, deployment = reading.chain, reading.deployment(address)
    fixed, state = deployment.fixed, chain.state(deployment)
    form, stage = code_of(fixed.form), stage_name(state.stage)
    details = _answer(
        schemas.DeploymentAnswer,
        deployment.manifest,
        config=fixed.config,
        sizes=_sizes(fixed),
        contract=_answer(schemas.ContractParameters, fixed, form=form, initial_model=fixed.model),
        parameters=_parameters(chain.blobs, fixed.config),
        state=_answer(schemas.ContractState, state, stage=stage),
        **_of(chain, deployment),
    )
    if federations_of(reading.request).is_enabled:
        details["links"]["federation"] = f"{details['links']['self']}/federation"
    return reading.respond(details)


def _chain_response(chain: PinnedChain) -> schemas.Chain:
    path = chain.path
    return {
        "name": path.name,
        "chain_id": str(path.chain_id),
        "genesis": to_hex(path.genesis),
        "links": {"deployments": f"{path}/deployments"},
    }


def _answer(kind: type[A], source: object, **given: object) -> A:
    """Return an answer with the given fields, and the others from a source."""
    names = " ".join(name for name in kind.__annotations__ if name != "as_of")
    return cast("A", picked(names, source, **given))


def _of(chain: PinnedChain, deployment: ServedDeployment) -> dict[str, Any]:
    """Return the fields that all answers about a deployment have."""
    address = deployment.manifest.address
    links = DeploymentPath(chain.path, address).links()
    return {"address": address, "run": deployment.run, "links": links}


def _sizes(fixed: Deployment) -> schemas.Sizes:
    return _answer(
        schemas.Sizes, fixed, accepted=accepted_size(fixed.aggregation_ppm, fixed.trainers)
    )


def _parameters(blobs: BlobReader, config: Digest) -> schemas.RunParameters | None:
    """Return the parameters of the run's configuration; None if its blob is not available."""
    document = read_run(blobs, config)
    if document is None:
        return None
    parameters = document.parameters
    strategy = {"number": parameters.strategy, "name": STRATEGIES[parameters.strategy]}
    distance = DIRECTION.name if parameters.compares_directions else parameters.distance
    answer = _answer(schemas.RunParameters, parameters, strategy=strategy, distance=distance)
    if parameters.payload == FLOAT32.name:
        del answer["payload"]
    return answer


ROUTES = [*_service.routes, *_deployments.routes]
