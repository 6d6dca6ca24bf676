"""Endpoints of clients, evidence and digests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from api.http.openapi import OF_CLIENT, OF_CLIENT_PAGE, OF_PAGE
from api.http.parameters import (
    EXPORTED,
    Address,
    ClientFilter,
    ClientIndex,
    Listed,
    OneChain,
    OrderQuery,
    Paged,
    of_deployment,
)
from ledger.history.answers_clients import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientsAnswer,
    DigestAnswer,
)
from ledger.history.answers_signed import EvidenceAnswer
from ledger.history.export import CLIENT_ROUNDS, CLIENTS
from ledger.history.fields import Order
from ledger.protocol import types
from ledger.protocol.types import Digest

_clients = of_deployment("/clients", "clients")
_rounds = of_deployment()


@_clients.answers("", "Clients, page by page", ClientsAnswer, OF_PAGE, media=EXPORTED)
def list_clients(reading: OneChain, address: Address, page: Listed) -> Response:
    """List the registered clients by index, with counts over the ended rounds.

    A ban takes effect in the round after its own. Score outcomes and dropout reasons come from the
    rounds' records; `records_missing` counts the missing ones.
    """
    return page.answer(reading, CLIENTS, reading.local(address).clients)


@_clients.answers("/{number}", "One client", ClientAnswer, OF_CLIENT)
def read_client(reading: OneChain, address: Address, number: ClientIndex) -> Response:
    """Return a client's address, samples, ban and counts."""
    return reading.respond(reading.local(address).client(number))


@_clients.answers(
    "/{number}/rounds",
    "A client's rounds, page by page",
    ClientRoundsAnswer,
    OF_CLIENT_PAGE,
    media=EXPORTED,
)
def list_client_rounds(
    reading: OneChain,
    address: Address,
    number: ClientIndex,
    page: Listed,
    order: OrderQuery = Order.NEWEST,
) -> Response:
    """List the rounds in which a client trained or served.

    One page examines a limited number of rounds: for a client that is seldom drawn, pages may be
    short or empty, with a cursor, until all rounds were examined.
    """
    local = reading.local(address)

    def read(limit: int, cursor: str | None) -> ClientRoundsAnswer:
        return local.client_rounds(number, order, limit, cursor)

    return page.answer(reading, CLIENT_ROUNDS, read)


@_rounds.answers("/evidence", "What is held against clients", EvidenceAnswer, OF_CLIENT_PAGE)
def list_evidence(
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
    local = reading.local(address)
    return reading.respond(local.evidence(order, page.limit, page.cursor, client))


DigestAsked = Annotated[
    str,
    Path(
        description="64 hex digits in any case, as `sha256sum` prints them, or with 0x before them",
        pattern=f"^{types.EITHER_FORM_ANY_CASE}$",
        max_length=66,
        examples=["5c" * 32],
    ),
]


@_rounds.answers("/digests/{digest}", "Where a digest stands", DigestAnswer, OF_PAGE)
def find_digest(reading: OneChain, address: Address, digest: DigestAsked, page: Paged) -> Response:
    """Return the kind, the round and the client of each place of a digest or a hash.

    Files (payloads, models, score vectors, records, incidents, the configuration) by their sha256;
    commitments, seeds, roots, results, heads; hashes of blocks and of transactions. Payloads and
    score vectors are found through the rounds' records, where these are available. An unknown
    digest has no places.
    """
    sought = Digest(bytes.fromhex(digest.removeprefix("0x")))
    return reading.respond(reading.local(address).digest(sought, page.limit, page.cursor))


ROUTES = [*_clients.routes, *_rounds.routes]
