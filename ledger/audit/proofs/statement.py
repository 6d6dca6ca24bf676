"""The statement about a client in a round: its codes, its data and its sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ledger.audit.formatting import reason_text
from ledger.protocol.encoding import float_from_bits
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.protocol.types import AcceptanceForm, ClientId, DropoutReason, RefusalReason


class ProvenRole(StrEnum):
    """The role of a client in a round, from seed, registry and bans."""

    TRAINER = "trainer"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"


class ClientVerdict(StrEnum):
    """The verdict on a client in a round."""

    USED = "used"
    NOT_USED = "not used"
    DROPPED_OUT = "dropped out"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"
    ABANDONED = "abandoned"
    OPEN = "open"


class ScoresTaken(StrEnum):
    """The fate of a member's scores, from the record."""

    COUNTED = "counted"
    REFUSED = "refused"
    NONE = "none"
    EMPTY_SEAT = "empty seat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rank:
    """A trainer's place in the ranking.

    Attributes:
        distance_bits: float64 bits of its distance to the committee.
        accepted: whether it is in S_a.
    """

    place: int
    ranked: int
    distance_bits: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class CutOff:
    """The end of the accepted set.

    Attributes:
        form: how S_a follows from the ranking.
        edge_bits: float64 bits of the distance of the one of them next to those that are not.
    """

    form: AcceptanceForm
    accepted: int
    edge_bits: int


@dataclass(frozen=True, slots=True)
class UpdateWeight:
    """The share of an update in the model, exactly: `samples` of `total`.

    Attributes:
        samples: n_k; 1 for strategy 3.
        total: Σ n_k over S_a; the number of accepted updates for strategy 3.
        is_clipped: whether a long update is shortened first; for the sentence alone.
    """

    samples: int
    total: int
    is_clipped: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ClientStatement:
    """The statement about one client in one round.

    Attributes:
        has_committed: whether the contract took a commitment of it.
        rank: its place; None if it was not ranked.
        cut_off: where S_a ends; None if it was not ranked.
        weight: its share; None if its update was not used.
        dropout: why it has no usable update, as the record says; None if it has one, or without a
            record.
        scores: what became of its scores; None unless it was a member of a decided round.
        refusal: why its scores were refused; None unless they were.
    """

    verdict: ClientVerdict
    role: ProvenRole
    has_committed: bool
    rank: Rank | None = None
    cut_off: CutOff | None = None
    weight: UpdateWeight | None = None
    dropout: DropoutReason | None = None
    scores: ScoresTaken | None = None
    refusal: RefusalReason | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON; bit patterns of float64 as decimal strings."""
        rank, cut_off, weight = self.rank, self.cut_off, self.weight
        return {
            "verdict": str(self.verdict),
            "role": str(self.role),
            "has_committed": self.has_committed,
            "rank": None
            if rank is None
            else {
                "place": rank.place,
                "ranked": rank.ranked,
                "distance": float_from_bits(rank.distance_bits),
                "distance_bits": str(rank.distance_bits),
                "accepted": rank.accepted,
            },
            "cut_off": None
            if cut_off is None
            else {
                "form": int(cut_off.form),
                "accepted": cut_off.accepted,
                "edge": float_from_bits(cut_off.edge_bits),
                "edge_bits": str(cut_off.edge_bits),
            },
            "weight": None
            if weight is None
            else {
                "samples": weight.samples,
                "total": weight.total,
                "share": weight.samples / weight.total,
            },
            "dropout": None if self.dropout is None else int(self.dropout),
            "scores": None if self.scores is None else str(self.scores),
            "refusal": None if self.refusal is None else int(self.refusal),
        }


_ROLES: dict[ProvenRole, str] = {
    ProvenRole.TRAINER: "was sampled to train",
    ProvenRole.MEMBER: "was a member of the committee",
    ProvenRole.NOT_SAMPLED: "was not sampled",
    ProvenRole.BANNED: "was banned when it opened",
}

_SCORES: dict[ScoresTaken, str] = {
    ScoresTaken.COUNTED: "its scores counted",
    ScoresTaken.REFUSED: "its scores were refused: {reason}",
    ScoresTaken.NONE: "the record has no scores of it",
    ScoresTaken.EMPTY_SEAT: "its seat was empty, because it was banned when the round opened",
    ScoresTaken.UNKNOWN: "what became of its scores is not known without the record",
}


def stated(round_number: int, client: ClientId, statement: ClientStatement) -> str:
    """Return what became of a client, in words; ranks count from 1."""
    who, at = f"client {client}", f"in round {round_number}"
    match statement.verdict:
        case ClientVerdict.USED | ClientVerdict.NOT_USED:
            return f"{at} the update of {who} {_ranked(statement)}."
        case ClientVerdict.DROPPED_OUT:
            reason = reason_text(statement.dropout) or "why is not known without the record"
            return f"{at} {who} was sampled to train and dropped out: {reason}."
        case ClientVerdict.MEMBER:
            scores = _SCORES[statement.scores or ScoresTaken.UNKNOWN].format(
                reason=reason_text(statement.refusal)
            )
            out = f"; of its own update the record says that {reason_text(statement.dropout)}"
            dropped = out if statement.dropout is not None else ""
            member = "was a member of the committee, and so did not train"
            return f"{at} {who} {member}; {scores}{dropped}."
        case ClientVerdict.NOT_SAMPLED:
            return f"{at} {who} was not sampled: neither trainer nor member."
        case ClientVerdict.BANNED:
            return f"{at} {who} took no part: it was banned before the round opened."
        case ClientVerdict.ABANDONED:
            return f"{at} nothing was decided, and no update used; {who} {_ROLES[statement.role]}."
        case ClientVerdict.OPEN:
            has = "has committed" if statement.has_committed else "has not committed"
            return f"round {round_number} is open; {who} {_ROLES[statement.role]}, and {has}."


def _ranked(statement: ClientStatement) -> str:
    rank, cut_off, weight = statement.rank, statement.cut_off, statement.weight
    if rank is None or cut_off is None:
        return "was ranked"
    place = f"ranked {rank.place + 1} of {rank.ranked}, distance {_number(rank.distance_bits)}"
    limit = _limit(cut_off)
    if weight is None:
        return f"was not used: {place}; {limit}"
    share = f"with weight {weight.samples}/{weight.total} = {weight.samples / weight.total:.6g}"
    if weight.is_clipped:
        share = f"{share}, shortened if it was longer than two fifths of the round's updates"
    return f"was used {share}: {place}; {limit}"


def _limit(cut_off: CutOff) -> str:
    edge = _number(cut_off.edge_bits)
    match cut_off.form:
        case AcceptanceForm.FIRST:
            return f"the first {cut_off.accepted} were accepted, up to distance {edge}"
        case AcceptanceForm.LAST:
            return f"the last {cut_off.accepted} were accepted, from distance {edge} on"
        case AcceptanceForm.BELOW_TWO if float_from_bits(cut_off.edge_bits) >= RIGHT_ANGLE:
            return f"no distance is below 2, so the first {cut_off.accepted} were accepted"
        case AcceptanceForm.BELOW_TWO:
            return f"the {cut_off.accepted} at a distance below 2 were accepted"


def _number(bits: int) -> str:
    return f"{float_from_bits(bits):.6g}"
