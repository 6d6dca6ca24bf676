"""The distance rules, composed of squared distances among the updates of a round.

`distances_by` takes any implementation of the squares, on the processor or another device, and
gives all of them the same order of members and clients, and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.direction import compared
from ledger.protocol.rules.distance import (
    DIRECTION,
    SQUARED,
    DistanceRule,
    Distances,
    Travel,
    Updates,
    plain_distances,
)
from ledger.protocol.types import ClientId

Matrix = NDArray[np.float64]
"""Shape (members, clients)."""


class PairSquares(Protocol):
    """Squared distances of one round's updates to those of some of them, the members."""

    def squares(self, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates to the members'.

        Args:
            norms: divisor of each update, shape (clients,); None for no division.
        """

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""


SquaresFactory = Callable[[Sequence[NDArray[np.float32]], Sequence[int]], PairSquares]
"""Makes the squares of updates, each contiguous of shape (d,), given the members' rows."""


def distances_by(squares_of: SquaresFactory) -> Distances:
    """Return a function that computes all distances of a round from an implementation of squares.

    Everything else is left to `plain_distances`: users' own rules, updates that are not float32
    vectors, and empty rounds.

    Returns:
        The counterpart of `plain_distances`, equal within each rule's tolerance; it raises
        ValueError for updates of different lengths.
    """

    def distances(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> Matrix:
        clients = sorted(updates)
        rows = [updates[client] for client in clients]
        if rule == DIRECTION and travel is not None and travel.any():
            rows.append(travel)  # one row more: all pairs with it come from the same stream
        is_composed = rule in {SQUARED, DIRECTION} and bool(clients) and bool(members)
        if not is_composed or not all(map(is_vector, rows)):
            return plain_distances(rule, travel, updates, members)
        if len({row.shape for row in rows}) > 1:
            raise ValueError("the updates differ in length")
        among = [np.ascontiguousarray(row) for row in rows]
        if rule == SQUARED:
            row_of = {client: row for row, client in enumerate(clients)}
            return squares_of(among, [row_of[member] for member in members]).squares()
        computed = _directions(squares_of(among, range(len(among))), len(clients))
        return np.tile(computed, (len(members), 1))

    return distances


def _directions(among: PairSquares, count: int) -> NDArray[np.float64]:
    """Return strategy III's distance of each update; a row behind the updates is the travel."""
    norms = among.norms()
    # A zero update is divided by 1: it has no direction, and its squares are not used.
    squares = among.squares(np.where(norms == 0, 1.0, norms))
    rows = np.flatnonzero(norms[:count])
    from_travel = squares[-1, rows] if len(norms) > count else None
    return compared(norms[:count], squares[np.ix_(rows, rows)], from_travel).distances


def is_vector(row: NDArray[np.float32]) -> bool:
    """Return whether compiled loops read an array once it is contiguous: a float32 vector."""
    return row.dtype == np.float32 and row.dtype.isnative and row.ndim == 1 and len(row) > 0
