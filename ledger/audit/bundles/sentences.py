"""The words for what checking a round came to."""

from __future__ import annotations

from ledger.audit.codes import Outcome

_OUTCOMES: dict[Outcome, str] = {
    Outcome.PASSED: "PASSED: round {} was checked whole, and is true",
    Outcome.FAILED: "FAILED: round {} contradicts itself, the truth, or what is trusted",
    Outcome.INCOMPLETE: "INCOMPLETE: nothing contradicts, but not all of round {} could be checked",
}


def verified(outcome: Outcome, round_number: int) -> str:
    """Return what checking a round came to.

    Args:
        outcome: of it.
        round_number: t.
    """
    return _OUTCOMES[outcome].format(round_number)
