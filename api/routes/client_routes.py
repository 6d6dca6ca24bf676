"""Endpoints of clients and of their rounds."""

from __future__ import annotations

from fastapi import Request, Response

from api.http.caching import respond
from api.http.export import EXPORTED, PAGE, Format, FormatQuery, exported
from api.http.openapi import OF_CLIENT, OF_PAGE, declared
from api.http.parameters import Address, ClientIndex, OneChain, OrderQuery, Paged, of_deployment
from api.http.problems import CLIENT_NOT_FOUND
from api.http.request_view import require_client
from ledger.history.queries import RoundQuery
from ledger.history.responses.clients import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientRoundsPage,
    ClientsAnswer,
    ClientsPage,
)
from ledger.history.serialise.csv_tables import CLIENT_ROUNDS, CLIENTS
from ledger.history.serialise.serialise_clients import client_rounds_page, clients_page, one_client
from ledger.history.status import Order
from ledger.protocol.types import ClientId

clients_router = of_deployment("/clients", "clients")


@clients_router.get(
    "",
    summary="Clients, page by page",
    operation_id="list_clients",
    response_model=ClientsAnswer,
    responses=EXPORTED | declared(*OF_PAGE),
)
def clients(
    request: Request,
    reading: OneChain,
    address: Address,
    page: Paged,
    format: FormatQuery = Format.JSON,  # noqa: A002 - the query's own word
) -> Response:
    """List the registered clients by index, with counts over the ended rounds.

    A ban takes effect in the round after its own. Score outcomes and dropout reasons come from the
    rounds' records; `records_missing` counts the missing ones.
    """
    history = reading.history(address)

    def read(limit: int, cursor: str | None) -> ClientsPage:
        return clients_page(history, limit, cursor)

    if format is not Format.JSON:
        return exported(reading, CLIENTS, lambda cursor: read(PAGE, cursor))
    return respond(request, reading, read(page.limit, page.cursor))


@clients_router.get(
    "/{number}",
    summary="One client",
    operation_id="read_client",
    response_model=ClientAnswer,
    responses=declared(*OF_CLIENT),
)
def client(request: Request, reading: OneChain, address: Address, number: ClientIndex) -> Response:
    """Return a client's address, samples, ban and counts."""
    history = reading.history(address)
    require_client(number, len(history.registered()))
    return respond(request, reading, one_client(history, ClientId(number)))


@clients_router.get(
    "/{number}/rounds",
    summary="A client's rounds, page by page",
    operation_id="list_client_rounds",
    response_model=ClientRoundsAnswer,
    responses=EXPORTED | declared(*OF_PAGE, CLIENT_NOT_FOUND),
)
def client_rounds(
    request: Request,
    reading: OneChain,
    address: Address,
    number: ClientIndex,
    page: Paged,
    order: OrderQuery = Order.NEWEST,
    format: FormatQuery = Format.JSON,  # noqa: A002 - the query's own word
) -> Response:
    """List the rounds in which a client trained or served.

    One page examines a limited number of rounds: for a client that is seldom drawn, pages may be
    short or empty, with a cursor, until all rounds were examined.
    """
    history, client = reading.history(address), ClientId(number)
    require_client(number, len(history.registered()))
    walk = RoundQuery("client rounds", order, client=client)

    def read(limit: int, cursor: str | None) -> ClientRoundsPage:
        return client_rounds_page(history, client, history.page(walk, limit, cursor))

    if format is not Format.JSON:
        return exported(reading, CLIENT_ROUNDS, lambda cursor: read(PAGE, cursor))
    return respond(request, reading, read(page.limit, page.cursor))
