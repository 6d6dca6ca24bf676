"""Incidents of a round's vote; their digest is in the round's event, unsigned.

Each incident but silence and a missing quorum is proven by the accused's own signature, so a
missing or bogus document neither fails an audit nor makes it incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ledger.protocol import canonical
from ledger.protocol.canonical import (
    client_id,
    digest,
    require_ascending,
    row,
    signature,
    unsigned,
    versioned_fields,
)
from ledger.protocol.encoding import ResultPreimage
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
    """Misbehaviour or failure of a member during a vote.

    Attributes:
        votes: signed by the accused, as evidence; as many as `VOTES_OF` says.
        opening: preimage of a wrong proposal's result; None for another kind.
    """

    phase: Phase
    view: int
    member: ClientId
    kind: IncidentKind
    votes: tuple[SignedVote, ...] = ()
    opening: ResultPreimage | None = None

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Sort key."""
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
    try:
        phase = Phase(unsigned("phase", phase_code, 8))
        kind = IncidentKind(unsigned("kind", kind_code, 8))
    except ValueError as error:
        raise EncodingError(f"phase {phase_code}, kind {kind_code}: no such incident") from error
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
    code, base, set_of, result, signed = entry
    kind = _KINDS.get(unsigned("kind", code, 8))
    if kind is None:
        raise EncodingError(f"vote kind {code} is neither request nor reply")
    vote = Vote(kind, number, phase, view, digest(base), digest(set_of), digest(result))
    return SignedVote(member, vote, signature(signed))
