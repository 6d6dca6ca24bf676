"""The direction distance, ours: bounded for all updates except far too long ones.

Squared distance lets zeros and slightly reversed updates win, because short vectors are near to
everybody. Here length counts only where it exceeds twice the round's median.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.distance import RELATIVE_TOLERANCE, DistanceRule
from ledger.protocol.rules.scoring import median

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ledger.protocol.rules.distance import DistanceContext, ServerDirection, Updates

OPPOSITE_DISTANCE = 4.0
"""Squared distance of opposite directions; also of an update that has no direction."""

ABSOLUTE_TOLERANCE = 1e-12
"""Absolute part of the margin, times the length factor."""

SERVER_DIRECTION_TOLERANCE = 1e-10
"""The same with a server direction: its weight grows with a slope of 150, and so does the
difference between two sums of one cosine."""


class DirectionMeasure:
    """‖Δ_k/‖Δ_k‖ − Δ_c/‖Δ_c‖‖² · f_k, with f_k > 1 for updates over twice the median length.

    With a server direction h it is the mean of this distance and of the one from h, which weighs
    b: (‖u_k − u_c‖² + b ‖u_k − h‖²) / (1 + b) · f_k. Up to f_k that is below 2 exactly where the
    cosine of u_k and u_c + b h is above 0. The sum is not normalised: it can be so short that two
    who compute it would agree on nothing.
    """

    def __init__(self, updates: Updates, server_direction: ServerDirection | None = None) -> None:
        self._updates = dict(updates)  # norms are looked up by the arrays' identity
        self._server_direction = server_direction

    @cached_property
    def _norms(self) -> Mapping[int, float]:
        """Norm of each update of the round, by the array that holds it."""
        # Lazily: a claim that equals the recomputed distance needs no norm.
        return {id(update): norm_of(update) for update in self._updates.values()}

    @cached_property
    def _typical(self) -> float:
        norms = np.array([self._norm(update) for update in self._updates.values()])
        return float(median(norms)) if len(norms) else 0.0

    @cached_property
    def _direction(self) -> NDArray[np.float64] | None:
        """The server direction h, of length 1; None if there is none."""
        if self._server_direction is None or not self._server_direction.vector.any():
            return None
        vector = self._server_direction.vector
        return vector.astype(np.float64) / norm_of(vector)

    @cached_property
    def _from_direction(self) -> Mapping[int, float]:
        """‖u − h‖² of each update of the round that has a direction, by the array that holds it."""
        return {id(u): self._to_direction(u) for u in self._updates.values() if u.any()}

    @cached_property
    def multiple(self) -> float:
        """The weight b of the server direction; 0 without one.

        Raises:
            ValueError: the displacement is not as long as the updates.
        """
        if self._direction is None or self._server_direction is None:
            return 0.0
        members = self._server_direction.members
        arrays = [id(self._updates[m]) for m in members if m in self._updates]
        distances = [self._from_direction[a] for a in arrays if a in self._from_direction]
        return self._server_direction.weight.multiple([1 - d / 2 for d in distances])

    def _norm(self, update: NDArray[np.float32]) -> float:
        # Each update has its norm asked for once with every member.
        norm = self._norms.get(id(update))
        return norm_of(update) if norm is None else norm

    def _to_direction(self, update: NDArray[np.float32]) -> float:
        assert self._direction is not None, "there is a server direction"
        if update.shape != self._direction.shape:
            raise ValueError(
                f"shapes of update {update.shape} and displacement {self._direction.shape} differ"
            )
        return _apart(update, self._norm(update), self._direction)

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
        distance = _apart(update, lengths[0], reference.astype(np.float64) / lengths[1])
        b = self.multiple
        if b:
            cached = self._from_direction.get(id(update))
            to_direction = self._to_direction(update) if cached is None else cached
            distance = (distance + b * to_direction) / (1 + b)
        return distance * self.factor(update)

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return the margin, which has an absolute part: near 0 a relative one means nothing."""
        with_direction = self._server_direction is not None
        absolute = SERVER_DIRECTION_TOLERANCE if with_direction else ABSOLUTE_TOLERANCE
        return RELATIVE_TOLERANCE * distance + absolute * self.factor(update)

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether the member's update has a direction: zeros are equally far from all."""
        return bool(reference.any())


def norm_of(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, accumulated in float64."""
    wide = update.astype(np.float64)
    return sqrt(float(np.dot(wide, wide)))


def _apart(update: NDArray[np.float32], length: float, direction: NDArray[np.float64]) -> float:
    """Return ‖Δ / length − direction‖²."""
    delta = update.astype(np.float64) / length - direction
    return float(np.dot(delta, delta))


def direction_measure(updates: Updates, context: DistanceContext) -> DirectionMeasure:
    """Return the measure among all usable updates of a round."""
    return DirectionMeasure(updates, context.server_direction)


DIRECTION = DistanceRule(
    name="direction",
    among=direction_measure,
    sentence="distances of direction",
    needs_all=True,
)
