"""Endpoint of the evidence against clients."""

from __future__ import annotations

from fastapi import Request, Response

from api.http.caching import respond
from api.http.openapi import OF_PAGE, declared
from api.http.parameters import Address, ClientFilter, OneChain, OrderQuery, Paged, of_deployment
from api.http.problems import CLIENT_NOT_FOUND
from api.http.request_view import require_client
from ledger.history.queries import RoundQuery
from ledger.history.responses.evidence import EvidenceAnswer
from ledger.history.serialise.serialise_evidence import evidence_page
from ledger.history.status import Order
from ledger.protocol.types import ClientId

evidence_router = of_deployment("/evidence")


@evidence_router.get(
    "",
    summary="What is held against clients",
    operation_id="list_evidence",
    response_model=EvidenceAnswer,
    responses=declared(*OF_PAGE, CLIENT_NOT_FOUND),
)
def evidence(
    request: Request,
    reading: OneChain,
    address: Address,
    page: Paged,
    order: OrderQuery = Order.NEWEST,
    client: ClientFilter = None,
) -> Response:
    """List bans, refused scores and incidents with the statements that they rest on.

    `limit` counts the examined rounds. A ban is proven: the contract has verified both statements.
    The reason of refused scores comes from the round's record, for which a quorum has voted. An
    incident is the claim of the decision's sender, with the accused's own signatures for wrong
    proposals and equivocation, and none for silence. Nothing of it is verified here.
    """
    history = reading.history(address)
    if client is not None:
        require_client(client, history.fixed.clients)
    against = None if client is None else ClientId(client)
    rounds = history.page(RoundQuery("evidence", order), page.limit, page.cursor)
    return respond(request, reading, evidence_page(history, rounds, against))
