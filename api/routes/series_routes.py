"""Endpoint of a run over its rounds, for charts."""

from __future__ import annotations

from fastapi import Request, Response

from api.http.caching import respond
from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import Address, OneChain, of_deployment
from ledger.history.responses.series import SeriesAnswer
from ledger.history.serialise.serialise_series import chart_rounds, series_response

series_router = of_deployment("/series")


@series_router.get(
    "",
    summary="A run over its rounds",
    operation_id="read_series",
    response_model=SeriesAnswer,
    responses=declared(*OF_DEPLOYMENT),
)
def series(request: Request, reading: OneChain, address: Address) -> Response:
    """Return columns for charts: accepted updates, views, committees; and accuracy as a claim.

    `claimed` comes from the run's own files. It is not proven, and the audit does not check it. A
    run of over 2,000 rounds is thinned evenly, and keeps its last round.
    """
    served = reading.deployment(address)
    points = chart_rounds(reading.chain.history(served))
    return respond(request, reading, series_response(points, served.folder))
