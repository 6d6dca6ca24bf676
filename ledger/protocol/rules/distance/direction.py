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
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ledger.protocol.rules.distance.context import DistanceContext, ServerDirection
    from ledger.protocol.rules.distance.rule import Updates

OPPOSITE_DISTANCE = 4.0
"""Squared distance of opposite directions; also of an update that has no direction."""

ABSOLUTE_TOLERANCE = 1e-12
"""What the margin has beside its relative part, times the length factor."""

SERVER_DIRECTION_TOLERANCE = 1e-10
"""The same where references follow the travel: its multiple grows with a slope of 150, and so
does what two sums of one cosine differ by."""


class DirectionMeasure:
    """‖Δ_k/‖Δ_k‖ − Δ_c/‖Δ_c‖‖² · f_k, with f_k > 1 for updates over twice the median length.

    Where references follow the travel h, it is the mean of this distance and of the one from h,
    which weighs b: (‖u_k − u_c‖² + b ‖u_k − h‖²) / (1 + b) · f_k. Up to f_k that is below 2 just
    where the cosine of u_k and u_c + b h is above 0. The sum is not brought to length 1: it can be
    so short that two who compute it would agree on nothing.
    """

    def __init__(self, updates: Updates, pull: ServerDirection | None = None) -> None:
        self._updates = dict(updates)  # their places in memory stay theirs
        self._pull = pull

    @cached_property
    def _norms(self) -> Mapping[int, float]:
        """Norm of each update of the round, by the array that holds it."""
        # Not before they are asked for: whoever finds a claim to be the very distance needs none.
        return {id(update): norm_of(update) for update in self._updates.values()}

    @cached_property
    def _typical(self) -> float:
        norms = np.array([self._norm(update) for update in self._updates.values()])
        return float(median(norms)) if len(norms) else 0.0

    @cached_property
    def _travel(self) -> NDArray[np.float64] | None:
        """The travel h, of length 1; None if there is none."""
        if self._pull is None or not self._pull.vector.any():
            return None
        return self._pull.vector.astype(np.float64) / norm_of(self._pull.vector)

    @cached_property
    def _from_travel(self) -> Mapping[int, float]:
        """‖u − h‖² of each update of the round that has a direction, by the array that holds it."""
        return {id(one): self._to_travel(one) for one in self._updates.values() if one.any()}

    @cached_property
    def multiple(self) -> float:
        """How much of the travel a reference takes, b; 0 without one.

        Raises:
            ValueError: the travel is not as long as the updates.
        """
        if self._travel is None or self._pull is None:
            return 0.0
        found = [id(self._updates[m]) for m in self._pull.members if m in self._updates]
        distances = [self._from_travel[one] for one in found if one in self._from_travel]
        return self._pull.travel.multiple([1 - distance / 2 for distance in distances])

    def _norm(self, update: NDArray[np.float32]) -> float:
        # Each update has its norm asked for once with every member.
        found = self._norms.get(id(update))
        return norm_of(update) if found is None else found

    def _to_travel(self, update: NDArray[np.float32]) -> float:
        assert self._travel is not None, "asked for where there is one"
        if update.shape != self._travel.shape:
            raise ValueError(
                f"shapes of update {update.shape} and travel {self._travel.shape} differ"
            )
        return _apart(update, self._norm(update), self._travel)

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
            return OPPOSITE_DISTANCE
        found = _apart(update, lengths[0], reference.astype(np.float64) / lengths[1])
        b = self.multiple
        if b:
            known = self._from_travel.get(id(update))
            to_travel = self._to_travel(update) if known is None else known
            found = (found + b * to_travel) / (1 + b)
        return found * self.factor(update)

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return the margin, which has an absolute part: near 0 a relative one means nothing."""
        absolute = ABSOLUTE_TOLERANCE if self._pull is None else SERVER_DIRECTION_TOLERANCE
        return RELATIVE_TOLERANCE * distance + absolute * self.factor(update)

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether the member's update points anywhere: zeros are equally far from all."""
        return bool(reference.any())


def norm_of(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, accumulated in float64."""
    wide = update.astype(np.float64)
    return sqrt(float(np.dot(wide, wide)))


def _apart(update: NDArray[np.float32], length: float, direction: NDArray[np.float64]) -> float:
    """Return ‖Δ / length − direction‖²."""
    delta = update.astype(np.float64) / length - direction
    return float(np.dot(delta, delta))


def direction_measure(updates: Updates, ground: DistanceContext) -> DirectionMeasure:
    """Return the measure among these updates.

    Args:
        updates: all usable updates of the round, trainers' and members'.
        ground: with what draws the members' references, if anything does.
    """
    return DirectionMeasure(updates, ground.pull)


DIRECTION = DistanceRule(
    name="direction",
    among=direction_measure,
    sentence="distances of direction",
    needs_all=True,
)
