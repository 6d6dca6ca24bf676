"""Endpoint of the coverage of a run's training by attestations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Query, Request, Response
from pydantic import BeforeValidator

from api.http.caching import respond
from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import MAX_INDEX, Address, OneChain, of_deployment, whole_number
from api.http.problems import BUSY, MAILBOX_UNREADABLE
from ledger.history.responses.training import TrainingAnswer

if TYPE_CHECKING:
    from api.federation.coverage import CoverageReader

training_router = of_deployment("/training")


@training_router.get(
    "",
    summary="Which updates auditors have repeated",
    operation_id="read_training",
    response_model=TrainingAnswer,
    responses=declared(*OF_DEPLOYMENT, BUSY, MAILBOX_UNREADABLE),
)
def training(
    request: Request,
    reading: OneChain,
    address: Address,
    first: Annotated[
        int | None,
        Query(alias="from", ge=1, le=MAX_INDEX, description="first round; else the first"),
        BeforeValidator(whole_number),
    ] = None,
    last: Annotated[
        int | None,
        Query(alias="to", ge=1, le=MAX_INDEX, description="last round; else the newest"),
        BeforeValidator(whole_number),
    ] = None,
) -> Response:
    """Return each update of ended rounds with its auditors' verdicts, and those that disagree.

    An attestation is its auditor's word, whom anybody can be: this service checks its signature,
    and no update. An answer ends with the round in which it has 5,000 updates, or has taken 5
    seconds; `next_from` says where the next one begins. New attestations come without a new block,
    about old rounds, too: no answer is immutable, and its ETag changes with what it says.
    """
    coverage = cast("CoverageReader", request.app.state.coverage)
    return respond(request, reading, coverage.read(reading, address, (first, last)))
