"""Selection: the trainers of a ranking that enter the model ("Selection Strategy")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import float_bits, word_client
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.protocol.types import AcceptanceForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.protocol.types import ClientId

THRESHOLD_BITS = float_bits(RIGHT_ANGLE) - 1
"""Bits of the largest distance that strategy III accepts, just below 2."""


def nearest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001 - one signature for all rules
) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(word_client(word) for word in ranking[:accepted])


def farthest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001
) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def within_threshold(
    ranking: Sequence[int], accepted: int, threshold_bits: int
) -> tuple[ClientId, ...]:
    """Return all trainers within the threshold, the m nearest if none is (strategy III, ours)."""
    within = sum(word >> 32 <= threshold_bits for word in ranking)
    return tuple(word_client(word) for word in ranking[: within or accepted])


SELECTIONS: dict[AcceptanceForm, Callable[[Sequence[int], int, int], tuple[ClientId, ...]]] = {
    AcceptanceForm.FIRST: nearest,
    AcceptanceForm.LAST: farthest,
    AcceptanceForm.WITHIN_THRESHOLD: within_threshold,
}
"""From the ranking words (best first), m and the threshold's bits to S_a in ranking order."""
