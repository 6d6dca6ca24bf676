"""The distance rules, made of squared distances over ranges of the updates' numbers.

Who computes the squares, the processor or another device, says it here: `distances_by` gives all
of them the same order of members and clients, and the same refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.distance.direction import DIRECTION, OPPOSITE_DISTANCE
from ledger.protocol.rules.distance.l2 import L2
from ledger.protocol.rules.distance.per_tensor import PER_TENSOR
from ledger.protocol.rules.distance.rule import (
    DistanceRule,
    Distances,
    Layout,
    Updates,
    plain_distances,
)
from ledger.protocol.rules.distance.squared import SQUARED

if TYPE_CHECKING:
    from ledger.protocol.rules.distance.context import DistanceContext, ServerDirection
    from ledger.protocol.types import ClientId

Matrix = NDArray[np.float64]
"""Shape (members, clients)."""


class PairSquares(Protocol):
    """The updates of one round.

    Attributes:
        dimension: d, at least 1.
        members: places of the members among the updates.
    """

    dimension: int
    members: Sequence[int]

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates from all members', over [start, stop).

        Args:
            start: first number of the updates that counts.
            stop: first one after it that does not.
            norms: what each update is divided by first, shape (clients,); None for nothing.
        """

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""


def squared(among: PairSquares, ground: DistanceContext) -> Matrix:  # noqa: ARG001 - one signature for all
    """Return ‖Δ_k − Δ_c‖².

    Args:
        among: the updates.
        ground: not used.
    """
    return among.squares(0, among.dimension)


def l2(among: PairSquares, ground: DistanceContext) -> Matrix:  # noqa: ARG001
    """Return ‖Δ_k − Δ_c‖.

    Args:
        among: the updates.
        ground: not used.
    """
    return np.sqrt(among.squares(0, among.dimension))


def per_tensor(among: PairSquares, ground: DistanceContext) -> Matrix:
    """Return the sum of the tensors' ‖Δ_k − Δ_c‖, in layout order.

    Args:
        among: the updates.
        ground: with the tensors that a flat update joins.
    """
    total: Matrix | None = None
    for start, stop in pairwise(_ends(ground.layout)):
        part = np.sqrt(among.squares(start, stop))
        total = part if total is None else total + part
    return among.squares(0, 0) if total is None else total


def direction(among: PairSquares, ground: DistanceContext) -> Matrix:  # noqa: ARG001
    """Return the squared distances of directions, times the length factor of each client.

    Args:
        among: the updates.
        ground: nothing draws the members' references.
    """
    norms = among.norms()
    found = among.squares(0, among.dimension, _divisors(norms))
    return _with_lengths(found, norms, among.members)


def direction_pulled(among: PairSquares, pull: ServerDirection, jury: Sequence[int]) -> Matrix:
    """Return the distances of directions to references that are drawn along the travel.

    Args:
        among: the updates and, last of them and last of the members, the travel.
        pull: how far it draws.
        jury: places of the members whose updates say how far.
    """
    norms, seats = among.norms(), among.members[:-1]
    found = among.squares(0, among.dimension, _divisors(norms))
    to_travel, norms, length = found[-1, :-1], norms[:-1], norms[-1]
    asked = [place for place in jury if norms[place] != 0] if length != 0 else []
    b = pull.travel.multiple([1 - float(to_travel[place]) / 2 for place in asked])
    mixed = (found[:-1, :-1] + b * to_travel) / (1 + b) if b else found[:-1, :-1]
    return _with_lengths(mixed, norms, seats)


def _divisors(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    # An update of zeros is divided by 1, not by 0: its pairs are set to NOWHERE later.
    return np.where(norms == 0, 1.0, norms)


def _with_lengths(found: Matrix, norms: NDArray[np.float64], seats: Sequence[int]) -> Matrix:
    """Return distances of directions with what the updates' lengths make of them.

    Args:
        found: of the clients from the members, shape (members, clients).
        norms: of the clients' updates.
        seats: places of the members among them.
    """
    ordered = np.sort(norms)
    typical = float(ordered[(len(norms) - 1) // 2] + ordered[len(norms) // 2]) / 2
    with np.errstate(invalid="ignore"):  # ∞ / ∞ is no excess, as in the plain rule
        excess = np.fmax(1.0, norms / (2 * typical)) if typical else np.ones_like(norms)
    nowhere = norms == 0
    missing = nowhere[None, :] | nowhere[list(seats)][:, None]
    return np.where(missing, OPPOSITE_DISTANCE, found * (excess * excess))


COMPOSED: Mapping[DistanceRule, Callable[[PairSquares, DistanceContext], Matrix]] = {
    SQUARED: squared,
    L2: l2,
    PER_TENSOR: per_tensor,
    DIRECTION: direction,
}
"""How each rule of the registry is made of squares."""

SquaresFactory = Callable[[Sequence[NDArray[np.float32]], Sequence[int]], PairSquares]
"""Makes a round of updates, each of shape (d,) and contiguous, and of the members' places."""


def distances_by(gathered: SquaresFactory) -> Distances:
    """Return what computes all distances of a round by somebody's squares.

    What is not made of squares is left to `plain_distances`: a rule that is not of the registry,
    updates that are no float32 vectors, and nobody's distances.

    Args:
        gathered: takes the updates of a round in hand.

    Returns:
        The twin of `plain_distances`, equal to it within each rule's own tolerance; it refuses
        updates that differ in length with ValueError.
    """

    def distances(
        rule: DistanceRule, ground: DistanceContext, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        clients, pull = sorted(updates), ground.pull if rule == DIRECTION else None
        rows = [updates[client] for client in clients]
        # The travel is one row more: compared with all, and all with it, in the same stream.
        drawn = [] if pull is None else [pull.vector]
        if not rows or not members or rule not in COMPOSED or not all(map(_is_vector, rows)):
            return plain_distances(rule, ground, updates, members)
        if len({row.shape for row in [*rows, *drawn]}) > 1:
            raise ValueError("the updates differ in length")
        if rule == PER_TENSOR and not _fits(ground.layout, len(rows[0])):
            return plain_distances(rule, ground, updates, members)
        places = {client: place for place, client in enumerate(clients)}
        seats = [places[member] for member in members]
        among = [np.ascontiguousarray(row) for row in [*rows, *drawn]]
        if pull is None:
            return COMPOSED[rule](gathered(among, seats), ground)
        jury = [places[member] for member in pull.members if member in places]
        return direction_pulled(gathered(among, [*seats, len(rows)]), pull, jury)

    return distances


def _ends(layout: Layout) -> list[int]:
    """Return where each tensor ends in the flat vector, after a 0."""
    return list(accumulate((prod(shape) for _, shape in layout), initial=0))


def _fits(layout: Layout, dimension: int) -> bool:
    """Say whether the tensors lie one after the other in so many numbers, and fill them."""
    ends = _ends(layout)
    return ends[-1] == dimension and ends == sorted(ends)


def _is_vector(row: NDArray[np.float32]) -> bool:
    return row.dtype == np.float32 and row.dtype.isnative and row.ndim == 1 and len(row) > 0
