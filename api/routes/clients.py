"""Clients and the rounds that they took part in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.export import PAGE, Format, FormatQuery, exported
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    ClientIndex,
    Now,
    OrderQuery,
    Paged,
    declared,
    refuse_unknown,
)
from api.reading import require_client
from api.schemas.clients import ClientAnswer, ClientRoundsAnswer, ClientsAnswer
from ledger.history.facts.clients import client_facts, client_rounds_facts, clients_facts
from ledger.history.facts.tables import CLIENT_ROUNDS, CLIENTS
from ledger.history.pages import Walk, read_page
from ledger.history.status import Order
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments/{address}/clients",
    tags=["clients"],
    dependencies=[Depends(refuse_unknown)],
)
_BAD_CURSOR = "the cursor is cut, altered or another query's"


@router.get(
    "",
    summary="Clients, page by page",
    response_model=ClientsAnswer,
    responses=NOT_MODIFIED
    | declared(
        _400=_BAD_CURSOR,
        _406="the format is not written here",
        _404="no such deployment is served",
        _422=INVALID,
        _502=NOT_SERVED,
        _503=UNAVAILABLE,
    ),
)
def clients(
    request: Request,
    reading: Now,
    address: Address,
    page: Paged,
    format: FormatQuery = Format.JSON,  # noqa: A002 - the query's own word
) -> Response:
    """List the registered clients by index, with what each did in the rounds that have ended.

    A ban counts from the round after its own on. Whose scores counted, and who dropped out why, is
    what the rounds' records say; how many of them are missing is told.
    """
    history = reading.now.history(reading.deployment(address))
    if format is not Format.JSON:
        return exported(
            reading, CLIENTS, format, lambda cursor: clients_facts(history, PAGE, cursor)
        )
    return respond(request, reading, clients_facts(history, page.limit, page.cursor))


@router.get(
    "/{number}",
    summary="One client",
    response_model=ClientAnswer,
    responses=NOT_MODIFIED
    | declared(
        _404="no such deployment or client", _422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE
    ),
)
def client(request: Request, reading: Now, address: Address, number: ClientIndex) -> Response:
    """Tell a client's address, its samples, whether it is banned, and what it did so far."""
    history = reading.now.history(reading.deployment(address))
    require_client(number, len(history.registered()))
    return respond(request, reading, client_facts(history, ClientId(number)))


@router.get(
    "/{number}/rounds",
    summary="A client's rounds, page by page",
    response_model=ClientRoundsAnswer,
    responses=NOT_MODIFIED
    | declared(
        _400=_BAD_CURSOR,
        _406="the format is not written here",
        _404="no such deployment or client",
        _422=INVALID,
        _502=NOT_SERVED,
        _503=UNAVAILABLE,
    ),
)
def client_rounds(
    request: Request,
    reading: Now,
    address: Address,
    number: ClientIndex,
    page: Paged,
    order: OrderQuery = Order.NEWEST,
    format: FormatQuery = Format.JSON,  # noqa: A002 - the query's own word
) -> Response:
    """List the rounds in which a client trained or served.

    One page looks at a bounded number of rounds: a client that is seldom drawn gets short or empty
    pages, with a cursor, until all rounds are looked at.
    """
    history = reading.now.history(reading.deployment(address))
    require_client(number, len(history.registered()))
    client = ClientId(number)
    walk = Walk("client rounds", order, client=client)

    def read(limit: int, cursor: str | None) -> Facts:
        page = read_page(history, walk, limit, cursor)
        return client_rounds_facts(history, client, page)

    if format is not Format.JSON:
        return exported(reading, CLIENT_ROUNDS, format, lambda cursor: read(PAGE, cursor))
    return respond(request, reading, read(page.limit, page.cursor))
