"""The distance rules, composed of squared distances over ranges of the updates' numbers.

`distances_by` takes any implementation of the squares, on the processor or another device, and
gives all of them the same order of members and clients, and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.crowding import crowding_of
from ledger.protocol.rules.direction import DIRECTION, OPPOSITE_DISTANCE, median_from_others
from ledger.protocol.rules.distance import (
    L2,
    PER_TENSOR,
    SQUARED,
    DistanceRule,
    Distances,
    Layout,
    Updates,
    plain_distances,
)
from ledger.protocol.rules.reference import LengthPenalty

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import DistanceContext
    from ledger.protocol.types import ClientId

Matrix = NDArray[np.float64]
"""Shape (members, clients)."""


class PairSquares(Protocol):
    """Squared distances of one round's updates.

    Attributes:
        dimension: d, at least 1.
        members: rows of the members among the updates.
    """

    dimension: int
    members: Sequence[int]

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates to the members' over [start, stop).

        Args:
            start: first number.
            stop: end of the range.
            norms: divisor of each update, shape (clients,); None for no division.
        """

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""


def squared(among: PairSquares, context: DistanceContext) -> Matrix:  # noqa: ARG001 - one signature for all
    """Return ‖Δ_k − Δ_c‖²."""
    return among.squares(0, among.dimension)


def l2(among: PairSquares, context: DistanceContext) -> Matrix:  # noqa: ARG001
    """Return ‖Δ_k − Δ_c‖."""
    return np.sqrt(among.squares(0, among.dimension))


def per_tensor(among: PairSquares, context: DistanceContext) -> Matrix:
    """Return the sum of the tensors' ‖Δ_k − Δ_c‖, in layout order."""
    total: Matrix | None = None
    for start, stop in pairwise(_ends(context.layout)):
        part = np.sqrt(among.squares(start, stop))
        total = part if total is None else total + part
    return among.squares(0, 0) if total is None else total


def direction(
    among: PairSquares, context: DistanceContext, seats: Sequence[int], asked: Sequence[int]
) -> Matrix:
    """Return the distances of directions, with the penalty of each client's length.

    Args:
        among: the updates and, last of them and last of its members, the displacement if there is
            one; all are members where all pairs enter.
        context: of the round.
        seats: rows of the members.
        asked: rows of the clients whose updates weigh the displacement.
    """
    norms, weigher = among.norms(), context.server_direction
    # A zero update is divided by 1: its pairs are set to OPPOSITE_DISTANCE later.
    squares = among.squares(0, among.dimension, np.where(norms == 0, 1.0, norms))
    count = len(norms) - (weigher is not None)
    along = np.zeros(count)
    if weigher is not None and norms[-1] != 0:
        along = 1 - squares[-1, :-1] / 2
    norms, has_direction = norms[:count], norms[:count] != 0
    takes_all, rows = takes_all_pairs(context), np.flatnonzero(has_direction)
    pairs = squares[np.ix_(rows, rows)] if takes_all else np.empty((0, 0))
    distances = squares[list(seats) if takes_all else slice(len(seats)), :count]
    if context.compares_all:
        distances = np.zeros_like(distances)
        distances[:, rows] = median_from_others(pairs)
    if weigher is not None:
        b = weigher.weight.multiple([along[row] for row in asked if has_direction[row]])
        if b:
            distances = (distances + b * squares[-1, :-1]) / (1 + b)
    lengths = _length_factors(norms)
    if context.penalty is LengthPenalty.CROWDED_SUMMAND:
        lengths[rows] *= crowding_of(1 - pairs / 2, along[rows]).factors
    is_product = context.penalty is LengthPenalty.FACTOR
    distances = distances * lengths if is_product else distances + (lengths - 1)
    missing = ~has_direction[None, :] | ~has_direction[list(seats)][:, None]
    return np.where(missing, OPPOSITE_DISTANCE, distances)


def takes_all_pairs(context: DistanceContext) -> bool:
    """Return whether distances depend on pairs of updates without a member."""
    return context.compares_all or context.penalty is LengthPenalty.CROWDED_SUMMAND


def _length_factors(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f = max(1, ‖Δ‖ / (2 t))² of each update, t the median norm; 1 where t is 0."""
    ordered = np.sort(norms)
    typical = float(ordered[(len(norms) - 1) // 2] + ordered[len(norms) // 2]) / 2
    with np.errstate(invalid="ignore"):  # ∞ / ∞ is no excess, as in the plain rule
        excess = np.fmax(1.0, norms / (2 * typical)) if typical else np.ones_like(norms)
    return np.asarray(excess * excess)


PAIRWISE: Mapping[DistanceRule, Callable[[PairSquares, DistanceContext], Matrix]] = {
    SQUARED: squared,
    L2: l2,
    PER_TENSOR: per_tensor,
}
"""Composition of each registered rule but the direction's, which depends on all updates."""

SquaresFactory = Callable[[Sequence[NDArray[np.float32]], Sequence[int]], PairSquares]
"""Makes the squares of updates, each contiguous of shape (d,), given the members' rows."""


def distances_by(squares_of: SquaresFactory) -> Distances:
    """Return a function that computes all distances of a round from an implementation of squares.

    Everything else is left to `plain_distances`: rules outside the registry, updates that are not
    float32 vectors, and empty rounds.

    Args:
        squares_of: makes the squares of a round's updates.

    Returns:
        The counterpart of `plain_distances`, equal within each rule's tolerance; it raises
        ValueError for updates of different lengths.
    """

    def distances(
        rule: DistanceRule, context: DistanceContext, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        clients = sorted(updates)
        rows = [updates[client] for client in clients]
        # The displacement is one row more: compared with all, and all with it, in one stream.
        weigher = context.server_direction if rule == DIRECTION else None
        drawn = [] if weigher is None else [weigher.vector]
        is_composed = rule == DIRECTION or rule in PAIRWISE
        if not rows or not members or not is_composed or not all(map(is_vector, rows)):
            return plain_distances(rule, context, updates, members)
        if len({row.shape for row in [*rows, *drawn]}) > 1:
            raise ValueError("the updates differ in length")
        if rule == PER_TENSOR and not _fits(context.layout, len(rows[0])):
            return plain_distances(rule, context, updates, members)
        row_of = {client: row for row, client in enumerate(clients)}
        seats = [row_of[member] for member in members]
        among = [np.ascontiguousarray(row) for row in [*rows, *drawn]]
        if rule != DIRECTION:
            return PAIRWISE[rule](squares_of(among, seats), context)
        taken = range(len(rows)) if takes_all_pairs(context) else seats
        compared = [*taken, *range(len(rows), len(among))]
        asked = () if weigher is None else weigher.members
        asked_rows = [row_of[client] for client in asked if client in row_of]
        return direction(squares_of(among, compared), context, seats, asked_rows)

    return distances


def is_vector(row: NDArray[np.float32]) -> bool:
    """Return whether compiled loops read an array once it is contiguous: a float32 vector."""
    return row.dtype == np.float32 and row.dtype.isnative and row.ndim == 1 and len(row) > 0


def _ends(layout: Layout) -> list[int]:
    """Return the end of each tensor in the flat vector, after a 0."""
    return list(accumulate((prod(shape) for _, shape in layout), initial=0))


def _fits(layout: Layout, dimension: int) -> bool:
    """Return whether the tensors are contiguous and fill a vector of this length."""
    ends = _ends(layout)
    return ends[-1] == dimension and ends == sorted(ends)
