"""Is it up, can it read, and what does it serve."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

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
from api.reading import NowRead  # noqa: TC001 - FastAPI reads it
from api.schemas.service import ChainsAnswer, Health, Ready, StatusAnswer
from ledger.chain.contract import abi
from ledger.history.facts.chains import chain_facts, head_facts
from ledger.history.facts.deployments import standing_facts
from ledger.protocol.encoding import PROTOCOL_VERSION

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
def ready(reading: NowRead) -> Response:
    """Answer 503 until the chain can be read: the service may start before the first run."""
    body = Ready.model_validate({"as_of": reading.as_of}).model_dump_json()
    return Response(body, 200, {"Cache-Control": "no-store"}, "application/json")


@router.get(
    "/v1/status",
    summary="Chain, deployments and versions",
    response_model=StatusAnswer,
    responses=NOT_MODIFIED | declared(_422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def status(request: Request, reading: NowRead) -> Response:
    """Tell the chain's head, where each deployment stands, and which manifests are refused."""
    now = reading.now
    served, refused = now.deployments()
    facts = {
        "chain": head_facts(now),
        "deployments": [standing_facts(now, each) for each in served],
        "refused": [{"manifest": one.manifest, "reason": one.reason} for one in refused],
        "versions": {
            "package": package_version(),
            "protocol": PROTOCOL_VERSION,
            "compiler": abi.artifact().compiler,
        },
    }
    return respond(request, reading, facts)


@router.get(
    "/v1/chains",
    summary="The chains that are served",
    response_model=ChainsAnswer,
    responses=NOT_MODIFIED | declared(_422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def chains(request: Request, reading: NowRead) -> Response:
    """List the chains by the names that stand in all paths below them.

    A contract has the same address in every fresh home, so a chain's name holds its id and the
    beginning of its block 0's hash: what was kept of one chain is never taken for another's.
    """
    return respond(request, reading, {"chains": [chain_facts(reading.now)]})


def package_version() -> str:
    """Return this package's version."""
    try:
        return version("cmfl-ledger")
    except PackageNotFoundError:
        return "unknown"
