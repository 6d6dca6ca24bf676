"""The words for what a proof says: sentences are made here, when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.formatting import reason_text
from ledger.audit.proofs.codes import Caveat, ClientVerdict, ProvenRole, ScoresTaken, StepName
from ledger.audit.report import AuditOutcome
from ledger.protocol.encoding import float_from_bits
from ledger.protocol.types import AcceptanceForm

if TYPE_CHECKING:
    from ledger.audit.proofs.statement import ClientStatement, CutOff, Rank, Weight
    from ledger.protocol.types import ClientId

STEPS: dict[StepName, str] = {
    StepName.QUESTION: "the proof is of the round and the client that were asked for",
    StepName.CONTRACT: "it is of the contract and the chain that are trusted",
    StepName.DEPLOYMENT: "the contract was deployed as the configuration demands",
    StepName.CODE: "the contract has the ledger's code",
    StepName.CONFIGURATION: "the configuration is the run's",
    StepName.HEAD: "the head that is trusted commits to the round",
    StepName.DECISION: "what was decided is what the head commits to",
    StepName.SEED: "the seed is the round's",
    StepName.COMMITTEE: "the committee is the one that was elected or drawn",
    StepName.BANS: "the bans from before the round are these, and no others",
    StepName.SAMPLING: "nobody is ranked whom the seed does not sample",
    StepName.COMMITMENTS: "the commitments are those that the contract took",
    StepName.COMMITMENT: "the update is the one that the client committed to",
    StepName.AUTHOR: "the commitment is signed by the client, for this contract and chain",
    StepName.RECORD: "the record is the one that was voted for",
    StepName.BASE: "the record is of this round, and of commitments that the contract took",
    StepName.CLOSING: "the record is of the commitments up to the closing block",
    StepName.REVEAL: "the record's updates are those that were ranked",
    StepName.DROPOUT: "the reason for the drop-out fits the commitments",
    StepName.UPDATES_ROOT: "client, update, rank, distance and acceptance are in the updates root",
    StepName.SCORES_ROOT: "the counted score vectors are those of the scores root",
    StepName.OUTCOME_PLACE: "the chain holds the end of the round where the proof says",
    StepName.COMMITMENT_PLACE: "the chain holds the commitment where the proof says",
    StepName.STATEMENT: "what the proof claims is what follows from it",
    StepName.EARLIER_RESULT: "the model that came before is the one that was voted for",
    StepName.OPENED_BLOCK: "the round opened in the block that the bundle says",
    StepName.EVENT_PLACES: "the chain holds every event where the bundle says, and no others",
    StepName.REPLAYED_HEAD: "the round's transactions lead to the head that the path has",
    StepName.PARTS: "nothing is in the bundle that nobody asked for",
}

CAVEATS: dict[Caveat, str] = {
    Caveat.NOTHING_TRUSTED: "neither a head nor a contract is trusted, so that nothing is proven",
    Caveat.CONTRACT_UNPROVEN: "a head alone does not say of which contract and chain it is",
    Caveat.PLACES_UNPROVEN: "a head alone does not say in which blocks and transactions it was",
    Caveat.CLOSING_CERTIFIED: "a head alone does not say in which blocks commitments were taken; "
    "that those up to the closing block count is what the committee certified",
    Caveat.NOT_FINAL: "the chain may still take back what this rests on",
    Caveat.DISTANCES_CERTIFIED: "the committee certified the distance; whether it is the true one "
    "is for an audit or a round bundle",
    Caveat.MODEL_CERTIFIED: "the committee certified the model; whether it holds the update with "
    "this weight is for an audit or a round bundle",
    Caveat.ABSENCE_CERTIFIED: "that the payload was missing is what the committee certified; "
    "nobody can prove it",
    Caveat.MALFORMED_CERTIFIED: "that the payload is no update is what the committee certified; "
    "the payload itself would prove it",
    Caveat.SILENCE_UNPROVEN: "the record has no scores of this member; that it sent none nobody "
    "can prove",
    Caveat.RECORD_LACKING: "the round's record is not in the proof, so that what only it says is "
    "not known",
    Caveat.AUTHOR_LACKING: "the client's signature of its commitment is not in the proof",
}

_OUTCOMES: dict[AuditOutcome, str] = {
    AuditOutcome.PASSED: "PROVEN: {}",
    AuditOutcome.FAILED: "CONTRADICTED: the proof does not hold, which says: {}",
    AuditOutcome.INCOMPLETE: "NOT PROVEN: nothing contradicts, but not everything could be "
    "checked: {}",
}

_ROLES: dict[ProvenRole, str] = {
    ProvenRole.TRAINER: "was sampled to train",
    ProvenRole.MEMBER: "was a member of the committee",
    ProvenRole.NOT_SAMPLED: "was not sampled",
    ProvenRole.BANNED: "was banned when it opened",
}

_SCORES: dict[ScoresTaken, str] = {
    ScoresTaken.COUNTED: "its scores counted",
    ScoresTaken.REFUSED: "its scores were refused: {reason_text}",
    ScoresTaken.NONE: "the record has no scores of it",
    ScoresTaken.EMPTY_SEAT: "its seat was empty, because it was banned when the round opened",
    ScoresTaken.UNKNOWN: "what became of its scores is not known without the record",
}


def verified(
    outcome: AuditOutcome, round_number: int, client: ClientId, said: ClientStatement
) -> str:
    """Return what a verification came to.

    Args:
        outcome: whether the statement is proven.
        round_number: t.
        client: who.
        said: what became of it.
    """
    return _OUTCOMES[outcome].format(stated(round_number, client, said))


def stated(round_number: int, client: ClientId, said: ClientStatement) -> str:
    """Return what became of a client, in words; ranks count from 1.

    Args:
        round_number: t.
        client: who.
        said: what became of it.
    """
    who, at = f"client {client}", f"in round {round_number}"
    match said.verdict:
        case ClientVerdict.USED | ClientVerdict.NOT_USED:
            return f"{at} the update of {who} {_ranked(said.rank, said.cut_off, said.weight)}."
        case ClientVerdict.DROPPED_OUT:
            reason = reason_text(said.dropout) or "reason_text is not known without the record"
            return f"{at} {who} was sampled to train and dropped out: {reason}."
        case ClientVerdict.MEMBER:
            taken = _SCORES[said.scores or ScoresTaken.UNKNOWN].format(
                reason_text=reason_text(said.refusal)
            )
            out = f"; of its own update the record says that {reason_text(said.dropout)}"
            dropped = out if said.dropout is not None else ""
            return (
                f"{at} {who} was a member of the committee, and so did not train; {taken}{dropped}."
            )
        case ClientVerdict.NOT_SAMPLED:
            return f"{at} {who} was not sampled: neither trainer nor member."
        case ClientVerdict.BANNED:
            return f"{at} {who} took no part: it was banned before the round opened."
        case ClientVerdict.ABANDONED:
            return f"{at} nothing was decided, and no update used; {who} {_ROLES[said.role]}."
        case ClientVerdict.OPEN:
            has = "has committed" if said.has_committed else "has not committed"
            return f"round {round_number} is open; {who} {_ROLES[said.role]}, and {has}."


def _ranked(rank: Rank | None, cut_off: CutOff | None, weight: Weight | None) -> str:
    if rank is None or cut_off is None:
        return "was ranked"
    place = f"ranked {rank.place + 1} of {rank.ranked}, distance {_number(rank.distance_bits)}"
    limit = _limit(cut_off)
    if weight is None:
        return f"was not used: {place}; {limit}"
    share = f"with weight {weight.samples}/{weight.total} = {weight.samples / weight.total:.6g}"
    return f"was used {share}: {place}; {limit}"


def _limit(cut_off: CutOff) -> str:
    edge = _number(cut_off.edge_bits)
    match cut_off.form:
        case AcceptanceForm.FIRST:
            return f"the first {cut_off.accepted} were accepted, up to distance {edge}"
        case AcceptanceForm.LAST:
            return f"the last {cut_off.accepted} were accepted, from distance {edge} on"
        case AcceptanceForm.WITHIN_THRESHOLD:
            limit = _number(cut_off.threshold_bits)
            return f"{cut_off.accepted} were accepted, the threshold being {limit}"


def _number(bits: int) -> str:
    return f"{float_from_bits(bits):.6g}"
