"""Scoring rules: a trainer's distances to the members become one number (Eq. computeScore)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """A way to combine distances.

    Attributes:
        name: as in TOML and in the run document.
        combine: from shape (members, ·), members in ascending client order, to shape (·,).
        sentence: for a reader, the statistic in "the ... of their distances".
    """

    name: str
    combine: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    sentence: str


def mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over members, summed row by row for the same bits on every machine.

    The paper ranks by P_k = C / Σ_c D_k^c. Ranking by P, best first, is ranking by the mean
    distance, nearest first; distances are used here because they exist for D = 0 too.

    Raises:
        ValueError: there is no member.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    total = np.zeros(distances.shape[1:])
    for row in distances:
        total = total + row
    return total / len(distances)


def median(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle value along the first axis, or (a + b) / 2 of the two.

    Ours: it withstands a minority of lying members.

    Raises:
        ValueError: there is no member.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    ordered = np.sort(distances, axis=0)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return np.asarray(ordered[half])
    return np.asarray((ordered[half - 1] + ordered[half]) / 2)


MEAN = ScoringRule(name="mean", combine=mean, sentence="mean")
MEDIAN = ScoringRule(name="median", combine=median, sentence="median")
