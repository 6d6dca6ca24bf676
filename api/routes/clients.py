"""Clients and the rounds that they took part in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from api.answers.round import deployment_path, round_links
from api.answers.scanning import Walk, read_page
from api.http.caching import respond
from api.http.paging import decode_cursor, encode_cursor
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    ClientIndex,
    OrderQuery,
    Paged,
    declared,
    refuse_unknown,
)
from api.reading import Now, Reading, require_client
from api.schemas.deployments import (
    ClientAnswer,
    ClientEntry,
    ClientRound,
    ClientRoundsAnswer,
    ClientsAnswer,
)
from ledger.chain.addresses import checksum
from ledger.protocol.encoding import word_client, word_distance

if TYPE_CHECKING:
    from api.answers.outcomes import Outcome
    from api.deployments import Served

router = APIRouter(
    prefix="/v1/deployments/{address}/clients",
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
        _404="no such deployment is served",
        _422=INVALID,
        _502=NOT_SERVED,
        _503=UNAVAILABLE,
    ),
)
def clients(request: Request, reading: Now, address: Address, page: Paged) -> Response:
    """List the registered clients by index. A ban counts from the round after its own on."""
    served = reading.deployment(address)
    registered = _registered(reading, served)
    scope = repr(("clients", served.manifest.address))
    start = 0 if page.cursor is None else decode_cursor(page.cursor, scope, registered - 1)
    end = min(start + page.limit, registered)
    bans = _bans(reading, served)
    answer = ClientsAnswer(
        as_of=reading.as_of,
        clients=tuple(_entry(served, index, bans, registered) for index in range(start, end)),
        next_cursor=encode_cursor(end, scope) if end < registered else None,
    )
    return respond(request, reading, answer)


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
    """Tell a client's address, its samples, and whether it is banned."""
    served = reading.deployment(address)
    registered = _registered(reading, served)
    require_client(number, registered)
    entry = _entry(served, number, _bans(reading, served), registered)
    return respond(request, reading, ClientAnswer(as_of=reading.as_of, client=entry))


@router.get(
    "/{number}/rounds",
    summary="A client's rounds, page by page",
    response_model=ClientRoundsAnswer,
    responses=NOT_MODIFIED
    | declared(
        _400=_BAD_CURSOR,
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
    order: OrderQuery = "newest",
) -> Response:
    """List the rounds in which a client trained or served.

    One page looks at a bounded number of rounds: a client that is seldom drawn gets short or empty
    pages, with a cursor, until all rounds are looked at.
    """
    served = reading.deployment(address)
    require_client(number, _registered(reading, served))
    walk = Walk("client rounds", order, client=number)
    found = read_page(served, walk, page.limit, page.cursor, reading.block.number)
    answer = ClientRoundsAnswer(
        as_of=reading.as_of,
        rounds=tuple(_part(served, number, outcome) for outcome in found.outcomes),
        scanned=found.scanned,
        next_cursor=found.next_cursor,
    )
    return respond(request, reading, answer)


def _registered(reading: Reading, served: Served) -> int:
    """Return how many clients had registered at the block that is spoken of."""
    block = reading.block.number
    if served.ledger.opening(1, block) is not None:
        return served.sizes.clients
    return served.state(block, reading.final).registered


def _bans(reading: Reading, served: Served) -> dict[int, int]:
    """Return the round of each ban by its client, up to the block that is spoken of."""
    return {ban.client: ban.round for ban in served.ledger.bans(reading.block.number)}


def _entry(served: Served, index: int, bans: dict[int, int], registered: int) -> ClientEntry:
    client = served.registry(registered)[index]
    path = f"{deployment_path(served.manifest.address)}/clients/{index}"
    return ClientEntry(
        client=index,
        address=checksum(client.address),
        samples=str(client.samples),
        banned_in_round=bans.get(index),
        links={"self": path, "rounds": f"{path}/rounds"},
    )


def _part(served: Served, client: int, outcome: Outcome) -> ClientRound:
    decided = outcome.decided
    words = [word for word in decided.ranking if word_client(word) == client] if decided else []
    rank = decided.ranking.index(words[0]) if decided and words else None
    place = outcome.committee.index(client) if client in outcome.committee else None
    return ClientRound(
        round=outcome.round,
        status=outcome.status,
        role="trainer" if place is None else "member",
        place=place,
        banned=outcome.registry[client].is_banned_in(outcome.round),
        rank=rank,
        distance=word_distance(words[0]) if words else None,
        distance_bits=str(words[0] >> 32) if words else None,
        accepted=decided is not None and client in decided.accepted,
        links=round_links(served.manifest.address, outcome.round),
    )
