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

from ledger.protocol.rules.direction import DIRECTION, OPPOSITE_DISTANCE
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

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import DistanceContext, ServerDirection
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


def direction(among: PairSquares, context: DistanceContext) -> Matrix:  # noqa: ARG001
    """Return the squared distances of directions, times the length factor of each client."""
    norms = among.norms()
    squares = among.squares(0, among.dimension, _divisors(norms))
    return _with_lengths(squares, norms, among.members)


def direction_pulled(
    among: PairSquares, server_direction: ServerDirection, jury: Sequence[int]
) -> Matrix:
    """Return the distances of directions to references that are drawn along the travel.

    Args:
        among: the updates and, last of them and last of the members, the travel.
        server_direction: how far it draws.
        jury: places of the members whose updates say how far.
    """
    norms, seats = among.norms(), among.members[:-1]
    squares = among.squares(0, among.dimension, _divisors(norms))
    to_travel, norms, length = squares[-1, :-1], norms[:-1], norms[-1]
    considered = [row for row in jury if norms[row] != 0] if length != 0 else []
    b = server_direction.weight.multiple([1 - float(to_travel[row]) / 2 for row in considered])
    mixed = (squares[:-1, :-1] + b * to_travel) / (1 + b) if b else squares[:-1, :-1]
    return _with_lengths(mixed, norms, seats)


def _divisors(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    # A zero update is divided by 1: its pairs are set to NOWHERE later.
    return np.where(norms == 0, 1.0, norms)


def _with_lengths(squares: Matrix, norms: NDArray[np.float64], seats: Sequence[int]) -> Matrix:
    """Return the distances of directions, scaled by the length factors.

    Args:
        squares: squared distances of directions, shape (members, clients).
        norms: of the clients' updates.
        seats: rows of the members among them.
    """
    ordered = np.sort(norms)
    typical = float(ordered[(len(norms) - 1) // 2] + ordered[len(norms) // 2]) / 2
    with np.errstate(invalid="ignore"):  # ∞ / ∞ is no excess, as in the plain rule
        excess = np.fmax(1.0, norms / (2 * typical)) if typical else np.ones_like(norms)
    nowhere = norms == 0
    missing = nowhere[None, :] | nowhere[list(seats)][:, None]
    return np.where(missing, OPPOSITE_DISTANCE, squares * (excess * excess))


COMPOSED: Mapping[DistanceRule, Callable[[PairSquares, DistanceContext], Matrix]] = {
    SQUARED: squared,
    L2: l2,
    PER_TENSOR: per_tensor,
    DIRECTION: direction,
}
"""Composition of each registered rule."""

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
        clients, server_direction = (
            sorted(updates),
            context.server_direction if rule == DIRECTION else None,
        )
        rows = [updates[client] for client in clients]
        # The travel is one row more: compared with all, and all with it, in the same stream.
        drawn = [] if server_direction is None else [server_direction.vector]
        if not rows or not members or rule not in COMPOSED or not all(map(is_vector, rows)):
            return plain_distances(rule, context, updates, members)
        if len({row.shape for row in [*rows, *drawn]}) > 1:
            raise ValueError("the updates differ in length")
        if rule == PER_TENSOR and not _fits(context.layout, len(rows[0])):
            return plain_distances(rule, context, updates, members)
        row_of = {client: row for row, client in enumerate(clients)}
        member_rows = [row_of[member] for member in members]
        among = [np.ascontiguousarray(row) for row in [*rows, *drawn]]
        if server_direction is None:
            return COMPOSED[rule](squares_of(among, member_rows), context)
        jury = [row_of[member] for member in server_direction.members if member in row_of]
        return direction_pulled(
            squares_of(among, [*member_rows, len(rows)]), server_direction, jury
        )

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
