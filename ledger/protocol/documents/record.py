"""Documents of a round: its record, members' score vectors, and incidents.

The record has the inputs of a decision; the aggregation result binds it. Each incident but silence
and a missing quorum is proven by the accused's own signature, so a missing or bogus document
neither fails an audit nor makes it incomplete.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ledger.protocol import canonical
from ledger.protocol.canonical import (
    client_id,
    code,
    digest,
    fixed_bytes,
    packed_clients,
    require_ascending,
    row,
    signature,
    unsigned,
    versioned_fields,
)
from ledger.protocol.encoding import ResultPreimage, client_list, set_digest
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import (
    ClientId,
    Digest,
    DropoutReason,
    IncidentKind,
    Phase,
    RefusalReason,
    Scores,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)

NO_CLIENT = ClientId(0)  # placeholder for the client of a refusal that names none
MAX_REFUSED_PER_MEMBER = 2  # refused vectors of one member that a record lists


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
        return {update.client: update.payload for update in self.updates}

    def named_payloads(self) -> dict[ClientId, Digest]:
        """Return the payload digest of each client that the record names one of, usable or not."""
        malformed = {d.client: d.payload for d in self.dropouts if d.payload is not None}
        return malformed | self.payloads()

    @property
    def claims(self) -> tuple[SignedScores, ...]:
        """All score claims; the claims that count come first."""
        return (*self.scores, *(entry.signed for entry in self.refused))

    @property
    def claims_with_vectors(self) -> tuple[SignedScores, ...]:
        """Score claims whose vectors members and audits read: all except claims of reason 7."""
        pairs = RefusalReason.TWO_VECTORS
        refused = (entry.signed for entry in self.refused if entry.reason is not pairs)
        return (*self.scores, *refused)


def encode_record(record: RoundRecord) -> bytes:
    """Return the bytes of a round's record."""
    return canonical.document(
        round=record.round,
        base=record.base,
        updates=[[update.client, update.payload] for update in record.updates],
        dropouts=[[d.client, int(d.reason), d.payload or b""] for d in record.dropouts],
        scores=[_from_claim(signed) for signed in record.scores],
        refused=[
            [*_from_claim(entry.signed), int(entry.reason), entry.client]
            for entry in record.refused
        ],
    )


def decode_record(data: bytes) -> RoundRecord:
    """Return the round record behind a blob, which is not validated here."""
    lists = ("updates", "dropouts", "scores", "refused")
    types = {"round": int, "base": bytes, **dict.fromkeys(lists, list)}
    value = versioned_fields("record", canonical.decode(data), types)
    number, base = unsigned("round", value["round"], 64), digest(value["base"])
    pairs = [row(entry, 2) for entry in value["updates"]]
    updates = tuple([UsableUpdate(client_id(client), digest(payload)) for client, payload in pairs])
    require_ascending("updates", [update.client for update in updates])
    dropouts = tuple(map(_dropout, value["dropouts"]))
    require_ascending("dropouts", [dropout.client for dropout in dropouts])
    identity = (number, base, set_digest([update.client for update in updates]))
    scores = tuple([_claim(entry, identity) for entry in value["scores"]])
    require_ascending("scores", [signed.scores.member for signed in scores])
    refused = tuple([_refused(entry, identity) for entry in value["refused"]])
    claims = [entry.signed.scores for entry in refused]
    require_ascending("refused", [(claim.member, claim.digest) for claim in claims])
    if max(Counter(claim.member for claim in claims).values(), default=0) > MAX_REFUSED_PER_MEMBER:
        raise EncodingError(f"a member has over {MAX_REFUSED_PER_MEMBER} refused vectors")
    return RoundRecord(number, base, updates, dropouts, scores, refused)


def _dropout(entry: object) -> Dropout:
    client, number, payload = row(entry, 3)
    reason = code(DropoutReason, "dropout reason", number)
    if reason is DropoutReason.PAYLOAD_MALFORMED:
        return Dropout(client_id(client), reason, digest(payload))
    fixed_bytes("payload", payload, 0)
    return Dropout(client_id(client), reason)


def _refused(entry: object, identity: tuple[int, Digest, Digest]) -> RefusedScores:
    *claim, number, client = row(entry, 5)
    reason = code(RefusalReason, "refusal reason", number)
    if reason is not RefusalReason.FALSE_DISTANCE and client != 0:
        raise EncodingError(f"reason {number} names no client, and {client!r:.80} is one")
    return RefusedScores(_claim(claim, identity), reason, client_id(client))


def _from_claim(signed: SignedScores) -> list[object]:
    return [signed.scores.member, signed.scores.digest, signed.signature]


def _claim(entry: object, identity: tuple[int, Digest, Digest]) -> SignedScores:
    member, vector, signed = row(entry, 3)
    number, base, clients = identity
    scores = Scores(number, client_id(member), base, clients, digest(vector))
    return SignedScores(scores, signature(signed))


MAX_VECTOR_BYTES = 100_000  # largest that is decoded; 256 trainers and 159 members take 5 kB
DISTANCE_LIMIT = 1e300  # largest distance that counts; a mean of larger ones could overflow


@dataclass(frozen=True)
class ScoreVector:
    """A member's distances to the trainers and to the other members, all ascending by client."""

    round: int
    member: ClientId
    base: Digest
    trainers: tuple[ClientId, ...]
    distances: NDArray[np.float64]  # D_k^c, shape (len(trainers),)
    members: tuple[ClientId, ...]  # those with an update
    member_distances: NDArray[np.float64]  # shape (len(members),)

    @cached_property
    def clients(self) -> tuple[ClientId, ...]:
        """All clients with a distance, and the member, ascending."""
        return tuple(sorted({*self.trainers, *self.members, self.member}))

    def claims(self) -> dict[ClientId, float]:
        """Return the published distance to each other client."""
        published = [*self.distances.tolist(), *self.member_distances.tolist()]
        return dict(zip(self.trainers + self.members, published, strict=True))

    @cached_property
    def is_in_range(self) -> bool:
        """True if every distance is finite, has sign bit 0 and is at most `DISTANCE_LIMIT`."""
        values = np.concatenate([self.distances, self.member_distances])
        return bool(np.all(values <= DISTANCE_LIMIT) and not np.signbit(values).any())


def encode_vector(vector: ScoreVector) -> bytes:
    """Return the bytes whose sha256 the member signs."""
    return canonical.document(
        round=vector.round,
        member=vector.member,
        base=vector.base,
        trainers=client_list(vector.trainers),
        distances=np.asarray(vector.distances, dtype="<f8").tobytes(),
        members=client_list(vector.members),
        member_distances=np.asarray(vector.member_distances, dtype="<f8").tobytes(),
    )


def decode_vector(data: bytes) -> ScoreVector:
    """Return the score vector behind a blob; the values of its distances are judged elsewhere."""
    lists = ("trainers", "distances", "members", "member_distances")
    types = {"round": int, "member": int, "base": bytes, **dict.fromkeys(lists, bytes)}
    value = versioned_fields("score vector", canonical.decode(data, MAX_VECTOR_BYTES), types)
    trainers, members = packed_clients(value["trainers"]), packed_clients(value["members"])
    return ScoreVector(
        unsigned("round", value["round"], 64),
        client_id(value["member"]),
        digest(value["base"]),
        trainers,
        _distances(value["distances"], len(trainers)),
        members,
        _distances(value["member_distances"], len(members)),
    )


def _distances(data: bytes, count: int) -> NDArray[np.float64]:
    if len(data) != 8 * count:
        raise EncodingError(f"{len(data)} bytes are not {count} float64 distances")
    return np.frombuffer(data, dtype="<f8")


VOTES_OF = {  # that an incident carries as evidence
    IncidentKind.SILENT: 0,
    IncidentKind.NO_QUORUM: 0,
    IncidentKind.WRONG_PROPOSAL: 1,
    IncidentKind.EQUIVOCATION: 2,
}

_KINDS = {1: VoteKind.REQUEST, 2: VoteKind.REPLY}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Incident:
    """Misbehaviour or failure of a member during a vote."""

    phase: Phase
    view: int
    member: ClientId
    kind: IncidentKind
    votes: tuple[SignedVote, ...] = ()  # signed by the accused, as many as `VOTES_OF` has
    opening: ResultPreimage | None = None  # of a wrong proposal's result

    @property
    def key(self) -> tuple[int, int, int, int]:
        return int(self.phase), self.view, int(self.member), int(self.kind)


@dataclass(frozen=True, slots=True)
class Incidents:
    """All incidents of a round, sorted by their keys."""

    round: int
    base: Digest
    incidents: tuple[Incident, ...]


def encode_incidents(document: Incidents) -> bytes:
    """Return the bytes of a round's incidents."""
    entries = []
    for incident in document.incidents:
        opening = [] if incident.opening is None else preimage_fields(incident.opening)
        entries.append([*incident.key, list(map(_from_vote, incident.votes)), opening])
    return canonical.document(round=document.round, base=document.base, incidents=entries)


def decode_incidents(data: bytes) -> Incidents:
    """Return the incidents behind a blob, which are not verified here."""
    types = {"round": int, "base": bytes, "incidents": list}
    value = versioned_fields("incidents document", canonical.decode(data), types)
    number = unsigned("round", value["round"], 64)
    incidents = tuple(_incident(number, row(entry, 6)) for entry in value["incidents"])
    require_ascending("incidents", [incident.key for incident in incidents])
    return Incidents(number, digest(value["base"]), incidents)


def preimage_fields(opening: ResultPreimage) -> list[object]:
    """Return an opening as documents carry it."""
    return [getattr(opening, field.name) for field in fields(opening)]


def decode_preimage(value: object) -> ResultPreimage:
    """Return the opening that a document carries."""
    return ResultPreimage(*map(digest, row(value, len(fields(ResultPreimage)))))


def _incident(number: int, entry: list[object]) -> Incident:
    phase_code, view_code, member, kind_code, votes, opening = entry
    phase = code(Phase, "phase", phase_code)
    kind = code(IncidentKind, "kind of incident", kind_code)
    view = unsigned("view", view_code, 32)
    who = client_id(member)
    cast = tuple(_vote(number, phase, view, who, row(v, 5)) for v in row(votes, VOTES_OF[kind]))
    if kind is not IncidentKind.WRONG_PROPOSAL:
        row(opening, 0)
        return Incident(phase, view, who, kind, cast)
    return Incident(phase, view, who, kind, cast, decode_preimage(opening))


def _from_vote(signed: SignedVote) -> list[object]:
    vote = signed.vote
    return [_NUMBERS[vote.kind], vote.base, vote.set_digest, vote.result, signed.signature]


def _vote(
    number: int, phase: Phase, view: int, member: ClientId, entry: list[object]
) -> SignedVote:
    kind_code, base, set_of, result, signed = entry
    kind = _KINDS.get(unsigned("kind", kind_code, 8))
    if kind is None:
        raise EncodingError(f"vote kind {kind_code} is neither request nor reply")
    vote = Vote(kind, number, phase, view, digest(base), digest(set_of), digest(result))
    return SignedVote(member, vote, signature(signed))
