"""The steps of a verification: what was expected, what was computed, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.audit.proofs import sentences
from ledger.audit.report import AuditOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.audit.proofs.codes import StepName
    from ledger.audit.proofs.proof import EventLocation
    from ledger.audit.proofs.trust import TrustedContract

Value: TypeAlias = "str | int | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """One comparison.

    Attributes:
        name: what is compared.
        expected: the value that it must have.
        computed: the value that follows from the document.
        is_ok: whether they agree; None where it cannot be told.
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
            "sentence": sentences.STEPS[self.name],
        }


def outcome_of(steps: Iterable[VerificationStep]) -> AuditOutcome:
    """Return what steps come to: passed, failed, or incomplete where one could not be taken.

    Args:
        steps: all of them.
    """
    found = {step.is_ok for step in steps}
    if False in found:
        return AuditOutcome.FAILED
    return AuditOutcome.INCOMPLETE if None in found else AuditOutcome.PASSED


def compare(name: StepName, expected: Value, computed: Value) -> VerificationStep:
    """Return a comparison that can be made.

    Args:
        name: what is compared.
        expected: the value that it must have.
        computed: the value that follows.
    """
    return VerificationStep(name, expected, computed, expected == computed)


def compare_with_chain(
    name: StepName, expected: Value, computed: Value, facts: TrustedContract
) -> VerificationStep:
    """Return a comparison with a chain: what may be taken back contradicts nothing yet.

    Args:
        name: what is compared.
        expected: what the chain has.
        computed: the value that follows.
        facts: what the chain says.
    """
    is_ok = True if expected == computed else (False if facts.is_final else None)
    return VerificationStep(name, expected, computed, is_ok)


def not_comparable(name: StepName, computed: Value = None) -> VerificationStep:
    """Return a comparison for which nothing is here that could be expected.

    Args:
        name: what is compared.
        computed: the value that follows, if there is one.
    """
    return VerificationStep(name, None, computed, None)


def shown(data: bytes) -> str:
    """Return bytes as a step shows them."""
    return f"0x{data.hex()}"


def location_value(place: EventLocation | None) -> Value:
    """Return a place on a chain as a step shows it."""
    if place is None:
        return None
    hashes = shown(place.block_hash), shown(place.transaction_hash)
    return (place.block_number, *hashes, place.log_index)
