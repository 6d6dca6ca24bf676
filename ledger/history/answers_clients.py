"""Answers about clients, their rounds, and the places of a digest, built from the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from ledger.history import fields
from ledger.history.answers_parts import Duties, Placed, part_entry
from ledger.history.answers_signed import Ban, ban_body
from ledger.history.fields import Answer, Response, doc
from ledger.history.history import RoundPage
from ledger.history.round import NO_CLIENT, DigestKind, Occurrence, Tally
from ledger.protocol.encoding import checksum, to_hex
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory


class ClientCounts(Response):
    """Counts over the ended rounds, including abandoned ones."""

    sampled: Annotated[fields.Count, doc("rounds in which it was drawn as a trainer")]
    ranked: Annotated[fields.Count, doc("rounds whose decision ranks it")]
    accepted: Annotated[fields.Count, doc("rounds in which its update entered the model")]
    dropped_out: Annotated[
        fields.Count, doc("rounds in which it was sampled, and a decision does not rank it")
    ]
    served: Annotated[fields.Count, doc("rounds in which it was a member with a seat")]
    scored: Annotated[fields.Count, doc("rounds in which its scores counted")]
    refused: Annotated[fields.Count, doc("rounds in which its scores were refused")]
    voted: Annotated[
        fields.Count, doc("phases whose deciding certificate it signed, of two in a round")
    ]
    primary: Annotated[fields.Count, doc("phases that were decided with it as the primary")]
    incidents: Annotated[fields.Count, doc("that decisions' senders name; bound by no vote")]


class ClientEntry(ClientCounts):
    """One registered client with its counts."""

    client: fields.Client
    address: fields.Eip55
    samples: Annotated[fields.Uint, doc("n_k as registered", examples=["119"])]
    banned_in_round: Annotated[
        int | None,
        doc(
            "the round whose course holds the ban, which counts from the next round "
            "on; null if not banned",
            examples=[3],
        ),
    ]
    links: fields.Links


def _entry(history: FoldedHistory, tally: Tally, client: int) -> ClientEntry:
    own = history.registered()[client]
    entry = {
        "client": client,
        "address": checksum(own.address),
        "samples": str(own.samples),
        "banned_in_round": own.banned_in or None,
        **{name: int(tally.clients[client][name]) for name in ClientCounts.__annotations__},
        "links": history.path.client_links(client),
    }
    return cast("ClientEntry", entry)


class CountedRounds(Response):
    """The rounds that the counts cover."""

    ended_rounds: Annotated[fields.Count, doc("rounds that the counts are of")]
    records_missing: Annotated[
        fields.Count,
        doc(
            "decided rounds whose record is not there: whose scores counted is not known of them",
            examples=[0],
        ),
    ]


class ClientsAnswer(Answer, CountedRounds):
    """A page of clients, ascending."""

    clients: list[ClientEntry]
    next_cursor: fields.NextCursor


def clients_page(history: FoldedHistory, limit: int, cursor: str | None) -> ClientsAnswer:
    """Return a page of clients, ascending."""
    clients, scope = len(history.registered()), repr(("clients", str(history.path)))
    start = 0 if cursor is None else fields.decode_cursor(cursor, scope, clients - 1)
    end, tally = min(start + limit, clients), history.tally()
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "clients": [_entry(history, tally, client) for client in range(start, end)],
        "next_cursor": fields.encode_cursor(end, scope) if end < clients else None,
    }


class ClientAnswer(Answer, CountedRounds):
    """One client."""

    client: ClientEntry
    ban: Annotated[
        Ban | None,
        doc(
            "what the client was banned for; null if it is not banned, or if the run "
            "ended before the round of the ban opened"
        ),
    ]


def one_client(history: FoldedHistory, client: ClientId) -> ClientAnswer:
    """Return one registered client, with the proof of its ban."""
    tally, banned_in = history.tally(), history.registered()[client].banned_in
    held = history.round(banned_in) if banned_in else None
    bans = held.bans if held else {}
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "client": _entry(history, tally, client),
        "ban": ban_body(history, bans[client]) if client in bans else None,
    }


class ClientRound(Duties, Placed):
    """One client's part in one round."""

    round: fields.RoundNumber
    status: fields.Status
    role: fields.Role
    place: fields.Place | None
    empty_seat: Annotated[
        bool, doc("whether it is a member that was banned before", examples=[False])
    ]
    committed: fields.Committed
    commitment: fields.CommitmentWord
    payload: fields.Payload
    outcome: Annotated[fields.TrainerOutcome | None, doc("null for a member")]
    reason: fields.NoUpdateWhy
    banned: Annotated[bool, doc("whether a ban of it was recorded in the round", examples=[False])]
    ended: fields.EndBlock | None
    links: fields.Links


_CLIENT_ROUND = (
    "round status role place empty_seat committed commitment payload outcome rank distance "
    "distance_bits reason scores refused voted primary_of incidents banned ended links"
)


class ClientRoundsAnswer(Answer):
    """A page of a client's rounds; one page examines a limited number of rounds."""

    rounds: list[ClientRound]
    scanned: fields.Scanned
    next_cursor: fields.NextCursor


def client_rounds_page(
    history: FoldedHistory, client: ClientId, page: RoundPage
) -> ClientRoundsAnswer:
    """Return a page of the rounds that a client took part in."""
    rounds: list[ClientRound] = []
    for each in page.rounds:
        part = history.documented(each).part(client)
        if part is None:
            raise ValueError(f"client {client} took no part in round {each.round}")
        links, ended = history.path.round_links(each.round), history.end_block(each)
        given = {"round": each.round, "status": str(each.status), "ended": ended, "links": links}
        rounds.append(part_entry(_CLIENT_ROUND, part, **given))
    return {"rounds": rounds, "scanned": page.scanned, "next_cursor": page.next_cursor}


class DigestPlace(Response):
    """One place of a digest."""

    kind: Annotated[str, doc("what it is there"), fields.one_of(map(fields.name_of, DigestKind))]
    round: Annotated[fields.RoundNumber | None, doc("null for what belongs to the deployment")]
    client: Annotated[fields.Client | None, doc("its client; null if it belongs to none")]
    links: fields.Links


BLOB_KINDS = {
    *(DigestKind.CONFIGURATION, DigestKind.INITIAL_MODEL, DigestKind.PAYLOAD, DigestKind.MODEL),
    *(DigestKind.SCORE_VECTOR, DigestKind.RECORD, DigestKind.INCIDENTS),
}
"""Kinds that are the sha256 of a file, as `sha256sum` prints it."""


def _place(history: FoldedHistory, occurrence: Occurrence) -> DigestPlace:
    path = history.path
    links = {"deployment": str(path)}
    if occurrence.round:
        links["round"] = path.round_links(occurrence.round)["self"]
    if occurrence.client != NO_CLIENT:
        links["client"] = path.client_links(occurrence.client)["self"]
    if occurrence.kind in BLOB_KINDS:
        links["blob"] = f"/v1/blobs/{occurrence.digest.hex()}"
    return {
        "kind": fields.name_of(occurrence.kind),
        "round": occurrence.round or None,
        "client": None if occurrence.client == NO_CLIENT else occurrence.client,
        "links": links,
    }


class DigestAnswer(Answer):
    """A page of the places of a digest."""

    digest: fields.Digest32
    items: Annotated[
        list[DigestPlace], doc("the deployment's first, then ascending by round; empty if nowhere")
    ]
    next_cursor: fields.NextCursor


def digest_page(
    history: FoldedHistory, digest: Digest, limit: int, cursor: str | None
) -> DigestAnswer:
    """Return a page of the places of a digest, the deployment's first, then by round."""
    scope = repr(("digests", str(history.path), digest.hex()))
    start = 0 if cursor is None else fields.decode_cursor(cursor, scope, 2**32 - 1)
    occurrences = history.occurrences(digest, start, limit + 1)
    has_more = len(occurrences) > limit
    return {
        "digest": to_hex(digest),
        "items": [_place(history, occurrence) for occurrence in occurrences[:limit]],
        "next_cursor": fields.encode_cursor(start + limit, scope) if has_more else None,
    }
