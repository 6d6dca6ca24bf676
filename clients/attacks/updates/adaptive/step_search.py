"""The longest accepted step against the colluders' mean, for distances between updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.adaptive.estimate import accepted_up_to, combined
from clients.attacks.updates.update_attack import AttackInput

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
    products = inner_products(attacker.colluders)
    limit = accepted_up_to(attacker, pair_distances(products))
    line = Line.of(products)

    def is_accepted(step: float) -> bool:
        return combined(line.distances(step)) <= limit

    return -largest(is_accepted, -1.0, FARTHEST) * attacker.mean


def largest(is_accepted: Callable[[float], bool], least: float, most: float) -> float:
    """Return the largest accepted number by bisection; `least` if none is accepted.

    Args:
        is_accepted: monotone: rejects every number above a rejected one.
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
    """Squared distances of −s Δ̄ from each colluder's update, Δ̄ the mean of all the others.

    Attributes:
        own: ‖Δ_c‖², shape (colluders,).
        mean: ‖Δ̄‖², likewise.
    """

    own: NDArray[np.float64]
    across: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, products: NDArray[np.float64]) -> Line:
        """Return the line through the colluders' mean.

        Args:
            products: inner products of the colluders' updates, shape (k, k), k at least 2.
        """
        others = len(products) - 1
        own, rows = np.diagonal(products), products.sum(axis=1)
        mean = (rows.sum() - 2 * rows + own) / others**2
        return cls(own, (rows - own) / others, mean)

    def distances(self, step: float) -> NDArray[np.float64]:
        """Return the squared distance of −s Δ̄ from each colluder's update for a step s."""
        squares = step * step * self.mean + 2 * step * self.across + self.own
        return np.maximum(squares, 0.0)  # rounding may make it negative for equal updates


def inner_products(updates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the inner products of updates of shape (k, d), shape (k, k)."""
    wide = updates.astype(np.float64)
    return np.asarray(wide @ wide.T)


def pair_distances(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distances between updates from their inner products, shape (k, k)."""
    own = np.diagonal(products)
    return np.maximum(own[:, None] + own[None, :] - 2 * products, 0.0)
