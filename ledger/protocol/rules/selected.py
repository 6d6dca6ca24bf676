"""What the sentence of a selection rule tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """What a selection came to, for the sentence that explains it.

    Attributes:
        accepted: size of S_a.
        edge: the accepted distance nearest to those refused.
        threshold: the certified threshold, 0 without one.
        threshold_sentence: what the threshold is.
    """

    accepted: int
    edge: float
    threshold: float
    threshold_sentence: str
