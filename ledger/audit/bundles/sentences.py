"""The words for what checking a round came to."""

from __future__ import annotations

from ledger.audit.report import AuditOutcome

_OUTCOMES: dict[AuditOutcome, str] = {
    AuditOutcome.PASSED: "PASSED: round {} was checked whole, and is true",
    AuditOutcome.FAILED: "FAILED: round {} contradicts itself, the truth, or what is trusted",
    AuditOutcome.INCOMPLETE: "INCOMPLETE: nothing contradicts, but not all of round {} could be "
    "checked",
}


def verified(outcome: AuditOutcome, round_number: int) -> str:
    """Return what checking a round came to.

    Args:
        outcome: of it.
        round_number: t.
    """
    return _OUTCOMES[outcome].format(round_number)
