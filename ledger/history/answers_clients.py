"""Answers about clients, their rounds, and the places of a digest; `LocalHistory` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from ledger.history import fields
from ledger.history.answers_parts import Duties, Placed
from ledger.history.answers_signed import Ban
from ledger.history.fields import Answer, Response, doc
from ledger.history.round import NO_CLIENT, DigestKind, Occurrence, Tally
from ledger.protocol.encoding import checksum

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory


class ClientCounts(Response):
    """Counts over the ended rounds, including abandoned ones."""

    sampled: Annotated[fields.Count, doc("rounds as a sampled trainer")]
    ranked: Annotated[fields.Count, doc("rounds whose decision ranks it")]
    accepted: Annotated[fields.Count, doc("rounds with its update in the model")]
    dropped_out: Annotated[fields.Count, doc("decided rounds that sampled but did not rank it")]
    served: Annotated[fields.Count, doc("rounds as a member with a seat")]
    scored: Annotated[fields.Count, doc("rounds with its scores counted")]
    refused: Annotated[fields.Count, doc("rounds with its scores refused")]
    voted: Annotated[
        fields.Count, doc("phases whose deciding certificate it signed, of two in a round")
    ]
    primary: Annotated[fields.Count, doc("phases that were decided with it as the primary")]
    incidents: Annotated[fields.Count, doc("reported by decisions' senders, without a vote")]


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


def client_entry(history: FoldedHistory, tally: Tally, client: int) -> ClientEntry:
    """Return a registered client with its counts."""
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


class ClientAnswer(Answer, CountedRounds):
    """One client."""

    client: ClientEntry
    ban: Annotated[
        Ban | None,
        doc(
            "reason of the ban; null if the client is not banned, or if the run "
            "ended before the round of the ban opened"
        ),
    ]


class ClientRound(Duties, Placed):
    """One client's part in one round."""

    round: fields.RoundNumber
    status: fields.Status
    role: fields.Role
    place: fields.Place | None
    empty_seat: Annotated[
        bool, doc("whether the client is a member that was banned before", examples=[False])
    ]
    committed: fields.Committed
    commitment: fields.CommitmentWord
    payload: fields.Payload
    outcome: Annotated[fields.TrainerOutcome | None, doc("null for a member")]
    reason: fields.NoUpdateWhy
    banned: Annotated[bool, doc("whether it was banned in the round", examples=[False])]
    ended: fields.EndBlock | None
    links: fields.Links


CLIENT_ROUND_FIELDS = (
    "round status role place empty_seat committed commitment payload outcome rank distance "
    "distance_bits reason scores refused voted primary_of incidents banned ended links"
)


class ClientRoundsAnswer(Answer):
    """A page of a client's rounds; one page examines a limited number of rounds."""

    rounds: list[ClientRound]
    scanned: fields.Scanned
    next_cursor: fields.NextCursor


class DigestPlace(Response):
    """One place of a digest."""

    kind: Annotated[str, doc("its role there"), fields.one_of(map(fields.name_of, DigestKind))]
    round: Annotated[fields.RoundNumber | None, doc("null for what belongs to the deployment")]
    client: Annotated[fields.Client | None, doc("its client; null if it belongs to none")]
    links: fields.Links


BLOB_KINDS = {
    *(DigestKind.CONFIGURATION, DigestKind.INITIAL_MODEL, DigestKind.PAYLOAD, DigestKind.MODEL),
    *(DigestKind.SCORE_VECTOR, DigestKind.RECORD, DigestKind.INCIDENTS),
}
"""Kinds that are the sha256 of a file, as `sha256sum` prints it."""


def digest_place(history: FoldedHistory, occurrence: Occurrence) -> DigestPlace:
    """Return a place of a digest with its links."""
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
