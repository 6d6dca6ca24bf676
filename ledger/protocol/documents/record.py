"""The record of a round: the inputs of its decision, bound by the aggregation result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ledger.protocol import canonical
from ledger.protocol.encoding import set_digest
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import (
    PROTOCOL_VERSION,
    ClientId,
    Digest,
    DropoutReason,
    RefusalReason,
    Scores,
    SignedScores,
)

NO_CLIENT = ClientId(0)
"""Placeholder for the client of a refusal that names none."""

MAX_REFUSED_PER_MEMBER = 2
"""Refused vectors of one member that a record lists."""


@dataclass(frozen=True, slots=True)
class UsableUpdate:
    """An active client's update that the record counts, by its payload's digest."""

    client: ClientId
    payload: Digest


@dataclass(frozen=True, slots=True)
class Dropout:
    """An active client without a usable update."""

    client: ClientId
    reason: DropoutReason
    payload: Digest | None = None  # digest of a malformed payload


@dataclass(frozen=True, slots=True)
class RefusedScores:
    """A signed score vector that does not count."""

    signed: SignedScores
    reason: RefusalReason
    client: ClientId = NO_CLIENT  # the one whose distance is false; 0 for another reason


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """The inputs of a decision."""

    round: int
    base: Digest  # the commitments digest after the closing block
    updates: tuple[UsableUpdate, ...]  # the usable ones, ascending by client
    dropouts: tuple[Dropout, ...]  # the other active clients, ascending
    scores: tuple[SignedScores, ...]  # those that count, ascending by member
    refused: tuple[RefusedScores, ...]  # the others, ascending by member and digest

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """The clients with a usable update, ascending: the set that score vectors are for."""
        return tuple(update.client for update in self.updates)

    @property
    def clients_digest(self) -> Digest:
        """Set digest of `clients`, which every score claim names."""
        return set_digest(self.clients)

    def payloads(self) -> dict[ClientId, Digest]:
        """Return the payload digest of each usable update."""
        return {update.client: update.payload for update in self.updates}

    def named_payloads(self) -> dict[ClientId, Digest]:
        """Return the payload digest of each client that the record names one of, usable or not."""
        malformed = {d.client: d.payload for d in self.dropouts if d.payload is not None}
        return malformed | self.payloads()

    @property
    def claims(self) -> tuple[SignedScores, ...]:
        """All score claims, those that count first."""
        return (*self.scores, *(entry.signed for entry in self.refused))

    @property
    def claims_with_vectors(self) -> tuple[SignedScores, ...]:
        """Score claims whose vectors members and audits read: all but those of reason 7."""
        pairs = RefusalReason.TWO_VECTORS
        refused = (entry.signed for entry in self.refused if entry.reason is not pairs)
        return (*self.scores, *refused)


def encode_record(record: RoundRecord) -> bytes:
    """Return the bytes of a round's record."""
    return canonical.encode(
        {
            "version": PROTOCOL_VERSION,
            "round": record.round,
            "base": record.base,
            "updates": [[update.client, update.payload] for update in record.updates],
            "dropouts": [[d.client, int(d.reason), d.payload or b""] for d in record.dropouts],
            "scores": [_from_claim(signed) for signed in record.scores],
            "refused": [
                [*_from_claim(entry.signed), int(entry.reason), entry.client]
                for entry in record.refused
            ],
        }
    )


def decode_record(data: bytes) -> RoundRecord:
    """Return the round record behind a blob, which is not validated here."""
    lists = ("updates", "dropouts", "scores", "refused")
    types = {"round": int, "base": bytes, **dict.fromkeys(lists, list)}
    value = canonical.versioned_fields("record", canonical.decode(data), types)
    number, base = canonical.unsigned("round", value["round"], 64), canonical.digest(value["base"])
    updates = tuple(_update(entry) for entry in value["updates"])
    canonical.require_ascending("updates", [update.client for update in updates])
    dropouts = tuple(_dropout(entry) for entry in value["dropouts"])
    canonical.require_ascending("dropouts", [dropout.client for dropout in dropouts])
    identity = (number, base, set_digest([update.client for update in updates]))
    scores = tuple(_claim(canonical.row(entry, 3), identity) for entry in value["scores"])
    canonical.require_ascending("scores", [signed.scores.member for signed in scores])
    refused = tuple(_refused(canonical.row(entry, 5), identity) for entry in value["refused"])
    claims = [entry.signed.scores for entry in refused]
    canonical.require_ascending("refused", [(claim.member, claim.digest) for claim in claims])
    if max(Counter(claim.member for claim in claims).values(), default=0) > MAX_REFUSED_PER_MEMBER:
        raise EncodingError(
            f"more than {MAX_REFUSED_PER_MEMBER} refused vectors of one member are listed"
        )
    return RoundRecord(number, base, updates, dropouts, scores, refused)


def _update(entry: object) -> UsableUpdate:
    client, payload = canonical.row(entry, 2)
    return UsableUpdate(canonical.client_id(client), canonical.digest(payload))


def _dropout(entry: object) -> Dropout:
    client, number, payload = canonical.row(entry, 3)
    reason = canonical.code(DropoutReason, "dropout reason", number)
    if reason is DropoutReason.PAYLOAD_MALFORMED:
        return Dropout(canonical.client_id(client), reason, canonical.digest(payload))
    canonical.fixed_bytes("payload", payload, 0)
    return Dropout(canonical.client_id(client), reason)


def _refused(entry: list[object], identity: tuple[int, Digest, Digest]) -> RefusedScores:
    *claim, number, client = entry
    reason = canonical.code(RefusalReason, "refusal reason", number)
    if reason is not RefusalReason.FALSE_DISTANCE and client != 0:
        raise EncodingError(f"reason {number} names no client, and {client!r:.80} is one")
    return RefusedScores(_claim(claim, identity), reason, canonical.client_id(client))


def _from_claim(signed: SignedScores) -> list[object]:
    return [signed.scores.member, signed.scores.digest, signed.signature]


def _claim(entry: list[object], identity: tuple[int, Digest, Digest]) -> SignedScores:
    member, vector, signed = entry
    number, base, clients = identity
    scores = Scores(number, canonical.client_id(member), base, clients, canonical.digest(vector))
    return SignedScores(scores, canonical.signature(signed))
