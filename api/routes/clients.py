"""Endpoints of clients, evidence and digests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from api.http.answers import CLIENT_NOT_FOUND, require_client, respond
from api.http.export import EXPORTED, PAGE, Format, FormatQuery, exported
from api.http.openapi import OF_CLIENT, OF_PAGE, declared
from api.http.parameters import (
    Address,
    ClientFilter,
    ClientIndex,
    OneChain,
    OrderQuery,
    Paged,
    of_deployment,
)
from ledger.history.answers import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientRoundsPage,
    ClientsAnswer,
    ClientsPage,
    DigestAnswer,
    EvidenceAnswer,
)
from ledger.history.export import CLIENT_ROUNDS, CLIENTS
from ledger.history.queries import Order, RoundQuery
from ledger.history.serialise import client_rounds_page, clients_page, digest_page, one_client
from ledger.history.serialise_rounds import evidence_page
from ledger.protocol import types
from ledger.protocol.types import ClientId, Digest

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


digests_router = of_deployment("/digests")

DigestAsked = Annotated[
    str,
    Path(
        description="64 hex digits in any case, as `sha256sum` prints them, or with 0x before them",
        pattern=f"^{types.EITHER_FORM_ANY_CASE}$",
        max_length=66,
        examples=["5c" * 32],
    ),
]


@digests_router.get(
    "/{digest}",
    summary="Where a digest stands",
    operation_id="find_digest",
    response_model=DigestAnswer,
    responses=declared(*OF_PAGE),
)
def digest(
    request: Request, reading: OneChain, address: Address, digest: DigestAsked, page: Paged
) -> Response:
    """Return the kind, the round and the client of each place of a digest or a hash.

    Files (payloads, models, score vectors, records, incidents, the configuration) by their sha256;
    commitments, seeds, roots, results, heads; hashes of blocks and of transactions. Payloads and
    score vectors are found through the rounds' records, where these are available. An unknown
    digest has no places.
    """
    history = reading.history(address)
    sought = Digest(bytes.fromhex(digest.removeprefix("0x")))
    return respond(request, reading, digest_page(history, sought, page.limit, page.cursor))
