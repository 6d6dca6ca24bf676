"""What is held against clients, over all rounds."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    ClientFilter,
    Now,
    OrderQuery,
    Paged,
    declared,
    refuse_unknown,
)
from api.reading import require_client
from api.schemas.evidence import EvidenceAnswer
from ledger.history.facts.evidence import evidence_facts
from ledger.history.pages import Walk, read_page
from ledger.history.status import Order
from ledger.protocol.types import ClientId

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments/{address}/evidence",
    tags=["rounds"],
    dependencies=[Depends(refuse_unknown)],
)


@router.get(
    "",
    summary="What is held against clients",
    response_model=EvidenceAnswer,
    responses=NOT_MODIFIED
    | declared(
        _400="the cursor is cut, altered or another query's",
        _404="no such deployment is served, or the client is not registered",
        _422=INVALID,
        _502=NOT_SERVED,
        _503=UNAVAILABLE,
    ),
)
def evidence(
    request: Request,
    reading: Now,
    address: Address,
    page: Paged,
    order: OrderQuery = Order.NEWEST,
    client: ClientFilter = None,
) -> Response:
    """List bans, refused scores and incidents with the statements that they rest on.

    `limit` counts the rounds that are looked at. A ban is proven: the contract has verified both
    statements. Why scores were refused is the round's record's word, which a quorum has voted for;
    an incident is the word of whoever sent the decision, with the accused's own signatures for
    wrong proposals and equivocation, and none for silence. Nothing of it is verified here.
    """
    served = reading.deployment(address)
    if client is not None:
        require_client(client, served.fixed.clients)
    history = reading.now.history(served)
    found = read_page(history, Walk("evidence", order), page.limit, page.cursor)
    against = None if client is None else ClientId(client)
    return respond(request, reading, evidence_facts(history, found, against))
