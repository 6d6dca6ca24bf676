"""Strategy III, ours: every trainer within a certified threshold, and no guess of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client
from ledger.protocol.rules.selection.rule import SelectionRule
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.rules.selected import SelectionOutcome


def within_threshold(
    ranking: Sequence[int], accepted: int, threshold_bits: int
) -> tuple[ClientId, ...]:
    """Return all trainers whose distance is at most the threshold; the m nearest if none is.

    Args:
        ranking: ranking words, best first.
        accepted: m.
        threshold_bits: float64 bits of the threshold.
    """
    within = sum(word >> 32 <= threshold_bits for word in ranking)
    return tuple(word_client(word) for word in ranking[: within or accepted])


def _sentence(found: SelectionOutcome) -> str:
    limit = f"{found.threshold_sentence} of {found.threshold:.6g}"
    if found.edge > found.threshold:
        return f"none lies within {limit}, so the {found.accepted} nearest were accepted."
    return f"the {found.accepted} within {limit} were accepted."


WITHIN_THRESHOLD = SelectionRule(
    number=3,
    name="III",
    form=AcceptanceForm.WITHIN_THRESHOLD,
    select=within_threshold,
    sentence=_sentence,
)
