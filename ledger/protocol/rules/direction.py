"""The direction distance, ours: bounded for all updates except far too long ones.

Squared distance lets zeros and slightly reversed updates win, because short vectors are near to
everybody. Here length counts only where it exceeds twice the round's median.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.crowding import crowding_of
from ledger.protocol.rules.distance import RELATIVE_TOLERANCE, DistanceRule
from ledger.protocol.rules.reference import LengthPenalty
from ledger.protocol.rules.scoring import median

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.crowding import Crowding
    from ledger.protocol.rules.distance import DistanceContext, ServerDirection, Updates

OPPOSITE_DISTANCE = 4.0
"""Squared distance of opposite directions; also of an update that has no direction."""

ABSOLUTE_TOLERANCE = 1e-12
"""Absolute part of the margin, times the length factor."""

SERVER_DIRECTION_TOLERANCE = 1e-10
"""The same with a server direction: its weight grows with a slope of 150, and so does the
difference between two sums of one cosine."""

CROWDING_TOLERANCE = 1e-9
"""The same with crowding, times the fifth power of its excess: g is the fourth, and where the base
lies between two distant values, g's relative error grows with the excess once more."""

_PART = 1 << 15
"""Numbers of the updates that are multiplied at a time. One sum over all of them would absorb small
terms: an update that begins with most of its length could be so made that honest members differ."""


class DirectionMeasure:
    """‖Δ_k/‖Δ_k‖ − Δ_c/‖Δ_c‖‖² · f_k, with f_k > 1 for updates over twice the median length.

    With a server direction h it is the mean of this distance and of the one from h, which weighs
    b: (‖u_k − u_c‖² + b ‖u_k − h‖²) / (1 + b) · f_k. Up to f_k that is below 2 exactly where the
    cosine of u_k and u_c + b h is above 0. The sum is not normalised: it can be so short that two
    who compute it would agree on nothing.

    Other penalties add f_k − 1, or f_k g_k − 1 with the factor g_k of crowding, instead of
    multiplying by f_k. Crowding is of all updates of the round, equal for every member.

    Where all are compared, the median of ‖u_k − u_j‖² over all other updates j of the round takes
    the place of the member's ‖u_k − u_c‖², and the whole distance is equal for every member.
    """

    def __init__(
        self,
        updates: Updates,
        server_direction: ServerDirection | None = None,
        penalty: LengthPenalty = LengthPenalty.FACTOR,
        *,
        compares_all: bool = False,
    ) -> None:
        self._updates = dict(updates)  # norms are looked up by the arrays' identity
        self._server_direction = server_direction
        self._penalty = penalty
        self._compares_all = compares_all

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

    @cached_property
    def _directed(self) -> Sequence[NDArray[np.float32]]:
        """The round's updates that have a direction, ascending by client."""
        rows = (self._updates[client] for client in sorted(self._updates))
        return [row for row in rows if row.any()]

    @cached_property
    def _cosines(self) -> NDArray[np.float64]:
        """Cosines among the round's updates that have a direction, ascending by client."""
        rows = self._directed
        norms = np.array([self._norm(row) for row in rows])[:, None]
        cosines = np.zeros((len(rows), len(rows)))
        for part in _parts(rows[0]) if rows else ():
            units = np.stack([row[part] for row in rows]) / norms
            cosines += units @ units.T
        return cosines

    @cached_property
    def crowding(self) -> Crowding:
        """Crowding of the round's updates that have a direction, ascending by client."""
        alignments = np.zeros(len(self._directed))
        if self._direction is not None:
            alignments = np.array([1 - self._from_direction[id(u)] / 2 for u in self._directed])
        return crowding_of(self._cosines, alignments)

    @cached_property
    def _from_others(self) -> Mapping[int, float]:
        """Median of ‖u − u_j‖² of each update that has a direction, by the array that holds it."""
        medians = median_from_others(np.maximum(0.0, 2 - 2 * self._cosines)).tolist()
        return {id(row): middle for row, middle in zip(self._directed, medians, strict=True)}

    @cached_property
    def _excesses(self) -> Mapping[int, float]:
        """Excess of crowding of each update that has a direction, by the array that holds it."""
        excesses = self.crowding.excess.tolist()
        return {id(row): excess for row, excess in zip(self._directed, excesses, strict=True)}

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

    def crowding_excess(self, update: NDArray[np.float32]) -> float:
        """Return the fourth root of g, the factor of crowding; 1 where crowding costs nothing.

        Args:
            update: one of the round's arrays.
        """
        if self._penalty is not LengthPenalty.CROWDED_SUMMAND or not update.any():
            return 1.0
        return self._excesses[id(update)]

    def between(self, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        """Return the distance of two directions, with the penalty of the update's length.

        Args:
            update: of a client; one of the round's arrays where others enter.
            reference: of a member.

        Raises:
            ValueError: the updates differ in length.
        """
        if update.shape != reference.shape:
            raise ValueError(f"updates of shapes {update.shape} and {reference.shape} differ")
        lengths = self._norm(update), self._norm(reference)
        if 0.0 in lengths:
            return OPPOSITE_DISTANCE
        if self._compares_all:
            distance = self._from_others[id(update)]
        else:
            distance = _apart(update, lengths[0], reference.astype(np.float64) / lengths[1])
        b = self.multiple
        if b:
            cached = self._from_direction.get(id(update))
            to_direction = self._to_direction(update) if cached is None else cached
            distance = (distance + b * to_direction) / (1 + b)
        if self._penalty is LengthPenalty.FACTOR:
            return distance * self.factor(update)
        excess = self.crowding_excess(update)
        squared = excess * excess
        return distance + (self.factor(update) * (squared * squared) - 1)

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return the margin, which has an absolute part: near 0 a relative one means nothing."""
        if self._penalty is LengthPenalty.CROWDED_SUMMAND:
            absolute = CROWDING_TOLERANCE * self.crowding_excess(update) ** 5
        else:
            with_direction = self._server_direction is not None
            absolute = SERVER_DIRECTION_TOLERANCE if with_direction else ABSOLUTE_TOLERANCE
        return RELATIVE_TOLERANCE * distance + absolute * self.factor(update)

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether the member's update has a direction: zeros are equally far from all."""
        return bool(reference.any())


def norm_of(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, accumulated in float64."""
    return sqrt(sum(_square(update[part].astype(np.float64)) for part in _parts(update)))


def _apart(update: NDArray[np.float32], length: float, direction: NDArray[np.float64]) -> float:
    """Return ‖Δ / length − direction‖²."""
    return sum(
        _square(update[part].astype(np.float64) / length - direction[part])
        for part in _parts(update)
    )


def _square(vector: NDArray[np.float64]) -> float:
    return float(np.dot(vector, vector))


def _parts(update: NDArray[np.float32]) -> Iterator[slice]:
    return (slice(start, start + _PART) for start in range(0, len(update), _PART))


def median_from_others(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each update's median squared distance from the others; 0 of one that is alone.

    Args:
        squares: ‖u_k − u_j‖² of all pairs, shape (n, n).
    """
    count = len(squares)
    if count < 2:
        return np.zeros(count)
    return median(squares[~np.eye(count, dtype=bool)].reshape(count, count - 1).T)


def direction_measure(updates: Updates, context: DistanceContext) -> DirectionMeasure:
    """Return the measure among all usable updates of a round."""
    return DirectionMeasure(
        updates, context.server_direction, context.penalty, compares_all=context.compares_all
    )


DIRECTION = DistanceRule(
    name="direction",
    among=direction_measure,
    sentence="distances of direction",
    needs_all=True,
)
