"""Crowding: how many updates pull the same way once the common direction is taken out.

Honest updates are nearly orthogonal to one another apart from the direction in which the model
moves. Attackers who pull together are not, however small the angle that each shows to a member.
Everything here is common to all members: it follows from all usable updates of the round's set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESIDUAL_FLOOR = 0.5
"""Least length ρ of a residual: an update along the server direction stays well-conditioned."""

BASE_FLOOR = 1e-3
"""Least base B."""

ALLOWANCE = 2.5
"""Multiples of the base up to which crowding costs nothing."""

CERTAINTY_SLOPE = 1000.0
"""Median crowding from 1 / 1000 on lets the lonely shift the base in full; below it is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Crowding:
    """Crowding of the updates that have a direction, in the order in which they were given.

    Attributes:
        values: q, shape (n,).
        excess: max(1, q / (2.5 B)), shape (n,).
    """

    values: NDArray[np.float64]
    base: float
    excess: NDArray[np.float64]

    @property
    def factors(self) -> NDArray[np.float64]:
        """Return g = excess⁴, the square of the square, shape (n,)."""
        squares = self.excess * self.excess
        return np.asarray(squares * squares)


def crowding_of(cosines: NDArray[np.float64], alignments: NDArray[np.float64]) -> Crowding:
    """Return the crowding of n updates.

    Args:
        cosines: ⟨u_k, u_j⟩ of all pairs, shape (n, n), clients ascending.
        alignments: a_k = ⟨u_k, h⟩, shape (n,); zeros without a server direction.
    """
    lengths = np.maximum(RESIDUAL_FLOOR, np.sqrt(np.maximum(0.0, 1.0 - alignments * alignments)))
    residuals = cosines - alignments[:, None] * alignments[None, :]
    residuals = residuals / (lengths[:, None] * lengths[None, :])
    shared = np.square(np.maximum(0.0, residuals))
    np.fill_diagonal(shared, 0.0)
    values = shared.sum(axis=0)
    base = base_of(values)
    return Crowding(values, base, np.maximum(1.0, values / (ALLOWANCE * base)))


def base_of(values: NDArray[np.float64]) -> float:
    """Return B, the median crowding of those that are not lonely, made continuous.

    Zeros and pure noise are lonely, and would lower a plain median. Each update is lonely to a
    degree: fully below a third of the median, not at all from two thirds of it on.

    Args:
        values: q of each update, shape (n,).
    """
    count = len(values)
    if count < 2:
        return BASE_FLOOR
    middle = float(median(values))
    lonely = 0.0
    if middle:
        with np.errstate(over="ignore"):  # ∞ times a subnormal median: not lonely
            degrees = np.clip(2.0 - 3.0 * (values / middle), 0.0, 1.0)
        lonely = min(1.0, CERTAINTY_SLOPE * middle) * float(degrees.sum())
    rank = (count - 1) / 2 + lonely / 2
    return max(BASE_FLOOR, float(np.interp(rank, np.arange(count), np.sort(values))))


def median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle value along the last axis, or (a + b) / 2 of the two; at least one value.

    It is ten times as fast as `np.median` on the few numbers of a round.
    """
    ordered = np.sort(values)
    half = ordered.shape[-1] // 2
    middle = ordered[..., half]
    return np.asarray(middle if ordered.shape[-1] % 2 else (ordered[..., half - 1] + middle) / 2)
