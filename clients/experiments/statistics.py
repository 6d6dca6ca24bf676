"""Statistics of few repetitions: mean and standard error, paired differences, ranks.

Methods are compared on the same seeds, so that their difference is taken seed by seed: data,
attackers and first model are then the same on both sides, and most of the noise drops out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt

import numpy as np


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over repetitions.

    Attributes:
        error: standard error of the mean, s / sqrt(n) with s² = Σ (x − mean)² / (n − 1); None for
            a single value, which says nothing of its spread.
    """

    mean: float
    error: float | None
    count: int


def mean_and_error(values: Sequence[float]) -> Estimate:
    """Return the mean of some values and its standard error.

    Args:
        values: one of each repetition, finite.
    """
    _require_finite(values)
    count = len(values)
    if not count:
        raise ValueError("a mean of no values")
    mean = fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    squares = fsum((value - mean) ** 2 for value in values)
    return Estimate(mean, sqrt(squares / (count - 1) / count), count)


def paired(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return the mean of value − other over pairs, and its standard error."""
    _require_as_many(values, others)
    return mean_and_error([value - other for value, other in zip(values, others, strict=True)])


def spearman(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation: Pearson's of the ranks, ties by their average rank."""
    _require_as_many(values, others)
    _require_finite((*values, *others))
    if len(values) < 2:
        return None
    middle = (len(values) + 1) / 2
    first = [rank - middle for rank in average_ranks(values)]
    second = [rank - middle for rank in average_ranks(others)]
    spread = sqrt(fsum(a * a for a in first) * fsum(b * b for b in second))
    if not spread:
        return None
    together = fsum(a * b for a, b in zip(first, second, strict=True))
    return max(-1.0, min(1.0, together / spread))


def average_ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1, ascending; equal values share their average rank.

    Args:
        values: finite.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts - 1) / 2)[places].tolist()
    return ranks


def _require_as_many(values: Sequence[float], others: Sequence[float]) -> None:
    if len(values) != len(others):
        raise ValueError(f"{len(values)} values beside {len(others)}: pairs are needed")


def _require_finite(values: Sequence[float]) -> None:
    for value in values:
        if not isfinite(value):
            raise ValueError(f"{value} is not finite")
