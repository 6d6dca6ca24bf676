"""A run over its rounds, for curves."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    Now,
    declared,
    refuse_unknown,
)
from api.schemas.series import SeriesAnswer
from ledger.history.facts.series import series_facts, told_rounds

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments/{address}/series",
    tags=["rounds"],
    dependencies=[Depends(refuse_unknown)],
)


@router.get(
    "",
    summary="A run over its rounds",
    response_model=SeriesAnswer,
    responses=NOT_MODIFIED
    | declared(
        _404="no such deployment is served", _422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE
    ),
)
def series(request: Request, reading: Now, address: Address) -> Response:
    """Tell columns for charts: accepted updates, views, committees; and accuracy as a claim.

    What is in `claimed` stands in the run's own files. Nobody has proven it, and the audit does not
    check it. A run of over 2,000 rounds is told by every so many-th round, and the last.
    """
    served = reading.deployment(address)
    history = reading.now.history(served)
    told = told_rounds(history.newest())
    if told == list(range(1, len(told) + 1)):
        rounds = history.rounds(1, len(told)) if told else []
    else:
        rounds = [one for number in told for one in history.rounds(number, number)]
    return respond(request, reading, series_facts(rounds, served.claimed()))
