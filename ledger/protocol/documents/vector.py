"""A member's score vector, and the incidents of a round, as documents.

Each incident but silence and a missing quorum is proven by the accused's own signature, so a
missing or bogus document neither fails an audit nor makes it incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ledger.protocol import canonical
from ledger.protocol.canonical import (
    client_id,
    code,
    digest,
    packed_clients,
    require_ascending,
    row,
    signature,
    unsigned,
    versioned_fields,
)
from ledger.protocol.encoding import ResultPreimage, client_list
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import (
    PROTOCOL_VERSION,
    ClientId,
    Digest,
    IncidentKind,
    Phase,
    SignedVote,
    Vote,
    VoteKind,
)

MAX_VECTOR_BYTES = 100_000
"""Largest score vector that is decoded; one of 256 trainers and 159 members takes 5 kB."""

DISTANCE_LIMIT = 1e300
"""Largest distance that counts; a mean of larger ones could overflow."""


@dataclass(frozen=True, slots=True)
class ScoreVector:
    """A member's distances to the trainers and to the other members, all ascending by client."""

    round: int
    member: ClientId
    base: Digest
    trainers: tuple[ClientId, ...]
    distances: NDArray[np.float64]  # D_k^c, shape (len(trainers),)
    members: tuple[ClientId, ...]  # those with an update
    member_distances: NDArray[np.float64]  # shape (len(members),)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All clients with a distance, and the member, ascending."""
        return tuple(sorted({*self.trainers, *self.members, self.member}))

    def claims(self) -> dict[ClientId, float]:
        """Return the published distance to each other client."""
        published = [*self.distances.tolist(), *self.member_distances.tolist()]
        return dict(zip(self.trainers + self.members, published, strict=True))

    @property
    def is_in_range(self) -> bool:
        """True if every distance is finite, has sign bit 0 and is at most `DISTANCE_LIMIT`."""
        values = np.concatenate([self.distances, self.member_distances])
        return bool(np.all(values <= DISTANCE_LIMIT) and not np.signbit(values).any())


def encode_vector(vector: ScoreVector) -> bytes:
    """Return the bytes whose sha256 the member signs."""
    return canonical.encode(
        {
            "version": PROTOCOL_VERSION,
            "round": vector.round,
            "member": vector.member,
            "base": vector.base,
            "trainers": client_list(vector.trainers),
            "distances": np.asarray(vector.distances, dtype="<f8").tobytes(),
            "members": client_list(vector.members),
            "member_distances": np.asarray(vector.member_distances, dtype="<f8").tobytes(),
        }
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


VOTES_OF = {
    IncidentKind.SILENT: 0,
    IncidentKind.NO_QUORUM: 0,
    IncidentKind.WRONG_PROPOSAL: 1,
    IncidentKind.EQUIVOCATION: 2,
}
"""Votes that an incident carries as evidence."""

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
    return canonical.encode(
        {
            "version": PROTOCOL_VERSION,
            "round": document.round,
            "base": document.base,
            "incidents": [
                [*incident.key, [_from_vote(vote) for vote in incident.votes], _opening(incident)]
                for incident in document.incidents
            ],
        }
    )


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


def _opening(incident: Incident) -> list[object]:
    return [] if incident.opening is None else preimage_fields(incident.opening)


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
