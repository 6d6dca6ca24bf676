"""Is it up, can it read, and what does it serve."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    declared,
    refuse_unknown,
)
from api.reading import Now, Reading, hexed
from api.schemas.words import (
    ChainHead,
    DeploymentStatus,
    Health,
    Ready,
    RefusedManifest,
    StatusAnswer,
    Versions,
)
from ledger.chain.contract import abi
from ledger.protocol.encoding import PROTOCOL_VERSION
from ledger.protocol.ledger_state import Stage

if TYPE_CHECKING:
    from typing import Literal

    from api.deployments import Served

router = APIRouter(tags=["service"], dependencies=[Depends(refuse_unknown)])


@router.get(
    "/health",
    summary="Is the process up",
    response_model=Health,
    responses=declared(_422=INVALID),
)
def health() -> Response:
    """Answer whenever the process can; says nothing of the chain."""
    return Response(
        Health().model_dump_json(), 200, {"Cache-Control": "no-store"}, "application/json"
    )


@router.get(
    "/ready",
    summary="Can the chain be read",
    response_model=Ready,
    responses=declared(_422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def ready(reading: Now) -> Response:
    """Answer 503 until the chain can be read: the service may start before the first run."""
    body = Ready(as_of=reading.as_of).model_dump_json()
    return Response(body, 200, {"Cache-Control": "no-store"}, "application/json")


@router.get(
    "/v1/status",
    summary="Chain, deployments and versions",
    response_model=StatusAnswer,
    responses=NOT_MODIFIED | declared(_422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def status(request: Request, reading: Now) -> Response:
    """Tell the chain's head, where each deployment stands, and which manifests are refused."""
    served, refused = reading.service.deployments.all(reading.chain)
    block = reading.block
    answer = StatusAnswer(
        as_of=reading.as_of,
        chain=ChainHead(
            chain_id=str(reading.chain.chain_id),
            genesis=hexed(reading.chain.genesis_hash),
            number=block.number,
            hash=hexed(block.hash),
            time=block.timestamp,
        ),
        deployments=tuple(_standing(reading, each) for each in served),
        refused=tuple(RefusedManifest(manifest=r.manifest, reason=r.reason) for r in refused),
        versions=Versions(
            package=package_version(),
            protocol=PROTOCOL_VERSION,
            compiler=abi.artifact().compiler,
        ),
    )
    return respond(request, reading, answer)


def _standing(reading: Reading, served: Served) -> DeploymentStatus:
    state = served.state(reading.block.number, reading.final)
    return DeploymentStatus(
        address=served.manifest.address,
        run=served.run,
        stage=stage_name(state.stage),
        round=state.round,
        rounds=served.sizes.rounds,
    )


def stage_name(stage: Stage) -> Literal["open", "registering", "finished"]:
    """Return where a deployment stands, as a word."""
    match stage:
        case Stage.REGISTERING:
            return "registering"
        case Stage.OPEN:
            return "open"
        case Stage.FINISHED:
            return "finished"


def package_version() -> str:
    """Return this package's version."""
    try:
        return version("cmfl-ledger")
    except PackageNotFoundError:
        return "unknown"
