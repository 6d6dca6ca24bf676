"""The steps of a verification: what was expected, what was computed, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ledger.audit.report import AuditOutcome
from ledger.protocol.encoding import to_hex

if TYPE_CHECKING:
    from ledger.audit.proofs.proof import EventLocation


class _CodeWithSentence(StrEnum):
    """Codes that carry their sentence."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Self:
        """Take the code for the value."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member


class StepName(_CodeWithSentence):
    """A comparison that a verification makes, with its sentence."""

    QUESTION = ("question", "the proof is of the round and the client that were asked for")
    CONTRACT = ("contract", "it is of the contract and the chain that are trusted")
    DEPLOYMENT = ("deployment", "the contract was deployed as the configuration demands")
    CODE = ("code", "the contract has the ledger's code")
    CONFIGURATION = ("configuration", "the configuration is the run's")
    HEAD = ("head", "the head that is trusted commits to the round")
    DECISION = ("decision", "what was decided is what the head commits to")
    SEED = ("seed", "the seed is the round's")
    COMMITTEE = ("committee", "the committee is the one that was elected or drawn")
    BANS = ("bans", "the bans from before the round are these, and no others")
    SAMPLING = ("sampling", "nobody is ranked whom the seed does not sample")
    COMMITMENTS = ("commitments", "the commitments are those that the contract took")
    COMMITMENT = ("commitment", "the update is the one that the client committed to")
    AUTHOR = ("author", "the commitment is signed by the client, for this contract and chain")
    RECORD = ("record", "the record is the one that was voted for")
    BASE = ("base", "the record is of this round, and of commitments that the contract took")
    CLOSING = ("closing", "the record is of the commitments up to the closing block")
    DROPOUT = ("dropout", "the reason for the drop-out fits the commitments")
    REVEAL = ("reveal", "the record's updates are those that were ranked")
    UPDATES_ROOT = (
        "updates root",
        "client, update, rank, distance and acceptance are in the updates root",
    )
    SCORES_ROOT = ("scores root", "the counted score vectors are those of the scores root")
    OUTCOME_PLACE = ("outcome place", "the chain holds the end of the round where the proof says")
    COMMITMENT_PLACE = ("commitment place", "the chain holds the commitment where the proof says")
    STATEMENT = ("statement", "what the proof claims is what follows from it")
    EARLIER_RESULT = ("earlier result", "the model that came before is the one that was voted for")
    OPENED_BLOCK = ("opened block", "the round opened in the block that the bundle says")
    EVENT_PLACES = (
        "event places",
        "the chain holds every event where the bundle says, and no others",
    )
    REPLAYED_HEAD = ("replayed head", "the round's transactions lead to the head that the path has")
    PARTS = ("parts", "nothing is in the bundle that nobody asked for")


class Caveat(_CodeWithSentence):
    """Something that is not proven, however well the comparisons end, with its sentence."""

    def as_dict(self) -> dict[str, str]:
        """Return it as plain data for JSON."""
        return {"caveat": str(self), "sentence": self.sentence}

    NOTHING_TRUSTED = (
        "nothing trusted",
        "neither a head nor a contract is trusted, so that nothing is proven",
    )
    CONTRACT_UNPROVEN = (
        "contract unproven",
        "a head alone does not say of which contract and chain it is",
    )
    PLACES_UNPROVEN = (
        "places unproven",
        "a head alone does not say in which blocks and transactions it was",
    )
    CLOSING_CERTIFIED = (
        "closing certified",
        "a head alone does not say in which blocks commitments were taken; that those up to "
        "the closing block count is what the committee certified",
    )
    NOT_FINAL = ("not final", "the chain may still take back what this rests on")
    DISTANCES_CERTIFIED = (
        "distances certified",
        "the committee certified the distance; whether it is the true one is for an audit or "
        "a round bundle",
    )
    MODEL_CERTIFIED = (
        "model certified",
        "the committee certified the model; whether it holds the update with this weight is "
        "for an audit or a round bundle",
    )
    ABSENCE_CERTIFIED = (
        "absence certified",
        "that the payload was missing is what the committee certified; nobody can prove it",
    )
    MALFORMED_CERTIFIED = (
        "malformed certified",
        "that the payload is no update is what the committee certified; the payload itself "
        "would prove it",
    )
    SILENCE_UNPROVEN = (
        "silence unproven",
        "the record has no scores of this member; that it sent none nobody can prove",
    )
    RECORD_LACKING = (
        "record lacking",
        "the round's record is not in the proof, so that what only it says is not known",
    )
    AUTHOR_LACKING = (
        "author lacking",
        "the client's signature of its commitment is not in the proof",
    )


Value: TypeAlias = "str | int | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """One comparison.

    Attributes:
        expected: the value that it must have.
        is_ok: whether they agree; None where that is unknown.
    """

    name: StepName
    expected: Value
    computed: Value
    is_ok: bool | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "name": str(self.name),
            "expected": self.expected,
            "computed": self.computed,
            "ok": self.is_ok,
            "sentence": self.name.sentence,
        }


def outcome_of(steps: Iterable[VerificationStep]) -> AuditOutcome:
    """Return the outcome of steps: passed, failed, or incomplete where one could not be taken."""
    results = {step.is_ok for step in steps}
    if False in results:
        return AuditOutcome.FAILED
    return AuditOutcome.INCOMPLETE if None in results else AuditOutcome.PASSED


def compare(name: StepName, expected: Value, computed: Value) -> VerificationStep:
    """Return a comparison that can be made."""
    return VerificationStep(name, expected, computed, expected == computed)


def not_comparable(name: StepName, computed: Value = None) -> VerificationStep:
    """Return a comparison for which nothing is here that could be expected."""
    return VerificationStep(name, None, computed, None)


def location_value(place: EventLocation | None) -> Value:
    """Return a place on a chain as a step shows it."""
    if place is None:
        return None
    hashes = to_hex(place.block_hash), to_hex(place.transaction_hash)
    return (place.block_number, *hashes, place.log_index)
