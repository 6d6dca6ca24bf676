"""What became of a client in a round, as it follows from what its proof holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.audit.proofs.codes import ClientVerdict, ProvenRole, ScoresTaken
from ledger.protocol.encoding import float_from_bits, word_client
from ledger.protocol.types import AcceptanceForm, DropoutReason, RefusalReason

if TYPE_CHECKING:
    from ledger.audit.proofs.proof import ClientProof
    from ledger.protocol.documents.record import RoundRecord

_ENDED_WITHOUT = {
    ProvenRole.NOT_SAMPLED: ClientVerdict.NOT_SAMPLED,
    ProvenRole.BANNED: ClientVerdict.BANNED,
}


@dataclass(frozen=True, slots=True)
class Rank:
    """A trainer's place in the ranking.

    Attributes:
        place: from 0.
        ranked: how many were ranked.
        distance_bits: float64 bits of its distance to the committee.
        accepted: whether it is in S_a.
    """

    place: int
    ranked: int
    distance_bits: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class CutOff:
    """Where S_a ends.

    Attributes:
        form: how S_a follows from the ranking.
        accepted: how many are in it.
        edge_bits: float64 bits of the distance of the one of them next to those that are not.
        threshold_bits: float64 bits of strategy III's threshold, 0 for I and II.
    """

    form: AcceptanceForm
    accepted: int
    edge_bits: int
    threshold_bits: int


@dataclass(frozen=True, slots=True)
class Weight:
    """The share of an update in the model, exactly: `samples` of `total`."""

    samples: int
    total: int


@dataclass(frozen=True, slots=True)
class ClientStatement:
    """What became of one client in one round.

    Attributes:
        verdict: in one word.
        role: what it was in the round.
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
    weight: Weight | None = None
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
                "threshold": float_from_bits(cut_off.threshold_bits),
                "threshold_bits": str(cut_off.threshold_bits),
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


@dataclass(frozen=True, slots=True)
class _Scores:
    taken: ScoresTaken
    refusal: RefusalReason | None = None


def derive_statement(proof: ClientProof) -> ClientStatement:
    """Return what became of the client, as it follows from all but the claimed statement.

    Args:
        proof: everything; whether it is true is not asked here.

    Raises:
        EncodingError: configuration or record are none.
    """
    role, has_committed = _role(proof), proof.commitment is not None
    record, dropout, scores = proof.recorded, None, None
    if proof.decision is None:
        verdict = (
            ClientVerdict.OPEN if proof.path.ended(proof.round) is None else ClientVerdict.ABANDONED
        )
        return ClientStatement(verdict, role, has_committed)
    if role in _ENDED_WITHOUT:
        return ClientStatement(_ENDED_WITHOUT[role], role, has_committed)
    if record is not None:
        reasons = {entry.client: entry.reason for entry in record.dropouts}
        dropout = reasons.get(proof.client)
    if role is ProvenRole.MEMBER:
        scores = _scores(proof, record)
        return ClientStatement(
            ClientVerdict.MEMBER,
            role,
            has_committed,
            dropout=dropout,
            scores=scores.taken,
            refusal=scores.refusal,
        )
    rank = _rank(proof)
    if rank is None:
        return ClientStatement(ClientVerdict.DROPPED_OUT, role, has_committed, dropout=dropout)
    cut_off = _cut_off(proof)
    if not rank.accepted:
        return ClientStatement(ClientVerdict.NOT_USED, role, has_committed, rank, cut_off)
    return ClientStatement(ClientVerdict.USED, role, has_committed, rank, cut_off, _weight(proof))


def _role(proof: ClientProof) -> ProvenRole:
    if proof.client in proof.committee:
        return ProvenRole.MEMBER
    if proof.registry[proof.client].is_banned_in(proof.round):
        return ProvenRole.BANNED
    return (
        ProvenRole.TRAINER
        if proof.client in proof.participants.trainers
        else ProvenRole.NOT_SAMPLED
    )


def _rank(proof: ClientProof) -> Rank | None:
    ranking = () if proof.decision is None else proof.decision.ranking
    accepted = proof.client in proof.sets[0]
    for place, word in enumerate(ranking):
        if word_client(word) == proof.client:
            return Rank(place, len(ranking), word >> 32, accepted)
    return None


def _cut_off(proof: ClientProof) -> CutOff | None:
    if proof.decision is None:
        return None
    accepted, form = proof.sets[0], proof.deployment.form
    bits = {word_client(word): word >> 32 for word in proof.decision.ranking}
    edge = accepted[0 if form is AcceptanceForm.LAST else -1]
    return CutOff(form, len(accepted), bits[edge], proof.decision.threshold_bits)


def _weight(proof: ClientProof) -> Weight:
    registry = proof.document.registry
    total = sum(registry[client].samples for client in proof.sets[0])
    return Weight(registry[proof.client].samples, total)


def _scores(proof: ClientProof, record: RoundRecord | None) -> _Scores:
    """Return what became of a member's scores, as the record has it."""
    if proof.client in proof.participants.banned:
        return _Scores(ScoresTaken.EMPTY_SEAT)
    if record is None:
        return _Scores(ScoresTaken.UNKNOWN)
    if any(signed.scores.member == proof.client for signed in record.scores):
        return _Scores(ScoresTaken.COUNTED)
    refused = (one for one in record.refused if one.signed.scores.member == proof.client)
    entry = next(refused, None)
    if entry is not None:
        return _Scores(ScoresTaken.REFUSED, entry.reason)
    return _Scores(ScoresTaken.NONE)
