"""Distance of directions, bounded for all but the far too long: ours.

Squared distance lets zeros and slightly reversed updates win, because short vectors are near to
everybody. Here length counts only where it exceeds twice the round's median.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.distance.rule import RELATIVE_TOLERANCE, DistanceRule
from ledger.protocol.rules.scoring.median import median

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.distance.rule import Layout

NOWHERE = 4.0
"""Squared distance of opposite directions; also of an update that has no direction."""

ABSOLUTE_TOLERANCE = 1e-12
"""What the margin has beside its relative part, times the length factor."""


class DirectionMeasure:
    """‖Δ_k/‖Δ_k‖ − Δ_c/‖Δ_c‖‖² · f_k, with f_k > 1 for updates over twice the median length."""

    def __init__(self, updates: Sequence[NDArray[np.float32]]) -> None:
        self._updates = list(updates)  # their places in memory stay theirs

    @cached_property
    def _norms(self) -> Mapping[int, float]:
        """Norm of each update of the round, by the array that holds it."""
        # Not before they are asked for: whoever finds a claim to be the very distance needs none.
        return {id(update): norm_of(update) for update in self._updates}

    @cached_property
    def _typical(self) -> float:
        norms = np.array([self._norm(update) for update in self._updates])
        return float(median(norms)) if len(norms) else 0.0

    def _norm(self, update: NDArray[np.float32]) -> float:
        # Each update has its norm asked for once with every member.
        found = self._norms.get(id(update))
        return norm_of(update) if found is None else found

    def factor(self, update: NDArray[np.float32]) -> float:
        """Return f = max(1, ‖Δ‖ / (2 t))², t the median norm; 1 where t is 0."""
        if self._typical == 0:
            return 1.0
        excess = max(1.0, self._norm(update) / (2 * self._typical))
        return excess * excess

    def between(self, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        """Return the distance of two directions, times the update's factor.

        Raises:
            ValueError: the updates differ in length.
        """
        if update.shape != reference.shape:
            raise ValueError(f"updates of shapes {update.shape} and {reference.shape} differ")
        lengths = self._norm(update), self._norm(reference)
        if 0.0 in lengths:
            return NOWHERE
        delta = update.astype(np.float64) / lengths[0] - reference.astype(np.float64) / lengths[1]
        return float(np.dot(delta, delta)) * self.factor(update)

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return the margin, which has an absolute part: near 0 a relative one means nothing."""
        return RELATIVE_TOLERANCE * distance + ABSOLUTE_TOLERANCE * self.factor(update)

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether the member's update points anywhere: zeros are equally far from all."""
        return bool(reference.any())


def norm_of(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, accumulated in float64."""
    wide = update.astype(np.float64)
    return sqrt(float(np.dot(wide, wide)))


def direction_measure(
    updates: Sequence[NDArray[np.float32]],
    layout: Layout,  # noqa: ARG001 - one signature for all rules
) -> DirectionMeasure:
    """Return the measure among these updates.

    Args:
        updates: all usable updates of the round, trainers' and members'.
        layout: not used.
    """
    return DirectionMeasure(updates)


DIRECTION = DistanceRule(
    name="direction",
    among=direction_measure,
    sentence="distances of direction",
    needs_all=True,
)
