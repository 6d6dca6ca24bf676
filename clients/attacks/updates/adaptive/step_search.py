"""The longest accepted step against the colluders' mean, for distances between updates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from clients.attacks.updates.adaptive.estimate import accepted_up_to, combined
from ledger.protocol.rules.distance import SQUARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clients.attacks.updates.update_attack import AttackInput
    from ledger.protocol.rules.distance import Layout

FARTHEST = 100.0
"""Largest multiple of the mean."""

_STEPS = 60
"""Halvings; the remaining interval is below float32 precision."""


def against(attacker: AttackInput) -> NDArray[np.float64]:
    """Return −s Δ̄ with the largest s in [−1, 100] that is expected to be accepted.

    s = −1 is the mean itself, the nearest possible update; it is sent even if that is expected to
    be refused.

    Args:
        attacker: one of at least two, with the rules of the run.
    """
    products = tensor_products(attacker.colluders, _tensors(attacker))
    is_squared = attacker.parameters is not None and attacker.parameters.distance == SQUARED.name
    limit = accepted_up_to(attacker, pair_distances(products, is_squared=is_squared))
    line = Line.of(products, is_squared=is_squared)

    def is_accepted(step: float) -> bool:
        return combined(line.distances(step)) <= limit

    return -largest(is_accepted, -1.0, FARTHEST) * attacker.mean


def largest(is_accepted: Callable[[float], bool], least: float, most: float) -> float:
    """Return the largest accepted number by bisection; `least` if none is accepted.

    Args:
        is_accepted: monotone: rejects every number above a rejected one.
        least: lower bound.
        most: upper bound.
    """
    if is_accepted(most):
        return most
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if is_accepted(middle):
            least = middle
        else:
            most = middle
    return least


@dataclass(frozen=True, slots=True)
class Line:
    """Distances of −s Δ̄ from each colluder's update, Δ̄ the mean of all the others.

    Attributes:
        own: ‖Δ_c‖² of each tensor, shape (tensors, colluders).
        across: ⟨Δ̄, Δ_c⟩, likewise.
        mean: ‖Δ̄‖², likewise.
        is_squared: whether the distance is squared.
    """

    own: NDArray[np.float64]
    across: NDArray[np.float64]
    mean: NDArray[np.float64]
    is_squared: bool

    @classmethod
    def of(cls, products: NDArray[np.float64], *, is_squared: bool) -> Line:
        """Return the line through the colluders' mean.

        Args:
            products: inner products of the colluders' updates, shape (tensors, k, k), k at least 2.
            is_squared: whether the distance is squared.
        """
        others = products.shape[1] - 1
        own, rows = np.diagonal(products, axis1=1, axis2=2), products.sum(axis=2)
        total = rows.sum(axis=1, keepdims=True)
        return cls(own, (rows - own) / others, (total - 2 * rows + own) / others**2, is_squared)

    def distances(self, step: float) -> NDArray[np.float64]:
        """Return the distance of −s Δ̄ from each colluder's update for a step s."""
        squares = step * step * self.mean + 2 * step * self.across + self.own
        return _distance(squares, is_squared=self.is_squared)


def tensor_products(updates: NDArray[np.float32], sizes: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the inner products of updates, tensor by tensor, shape (tensors, k, k).

    Args:
        updates: shape (k, d).
        sizes: number of elements of each tensor, d in total.
    """
    ends = [0, *np.cumsum(sizes).tolist()]
    parts = [updates[:, start:end].astype(np.float64) for start, end in pairwise(ends)]
    return np.stack([part @ part.T for part in parts])


def pair_distances(products: NDArray[np.float64], *, is_squared: bool) -> NDArray[np.float64]:
    """Return the distances between the colluders' updates, shape (k, k).

    Args:
        products: their inner products, shape (tensors, k, k).
        is_squared: whether the distance is squared.
    """
    own = np.diagonal(products, axis1=1, axis2=2)
    squares = own[:, :, None] + own[:, None, :] - 2 * products
    return _distance(squares, is_squared=is_squared)


def _distance(squares: NDArray[np.float64], *, is_squared: bool) -> NDArray[np.float64]:
    """Return ‖·‖², or the sum of the tensors' norms, from the squares of each tensor's norm."""
    bounded = np.maximum(squares, 0.0)  # rounding may make it negative for equal updates
    return np.asarray((bounded if is_squared else np.sqrt(bounded)).sum(axis=0))


def _tensors(attacker: AttackInput) -> tuple[int, ...]:
    """Return the sizes of the tensors that the run's distance measures separately."""
    layout: Layout = attacker.layout
    is_apart = attacker.parameters is not None and attacker.parameters.distance == "per_tensor"
    if not layout or not is_apart:
        return (attacker.colluders.shape[1],)
    return tuple(prod(shape) for _, shape in layout)
