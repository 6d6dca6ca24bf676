"""The scoring system (Eq. computeScore): how far each update lies from the committee's.

The paper ranks by P_k = C / Σ_c D_k^c, D_k^c = ‖Δ_k − Δ_c‖². Ranking by P, best first, is ranking
by the mean distance, nearest first; here distances are kept, because they exist for D = 0 too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.types import Scoring

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPREAD_FACTOR = 3.0
"""λ of strategy III: how many median absolute deviations still count as the committee's spread."""


def squared_distance(update: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return D = ‖Δ_k − Δ_c‖² of two updates.

    Args:
        update: Δ_k, shape (d,).
        other: Δ_c, shape (d,).

    Returns:
        The squared distance, accumulated in float64.

    Raises:
        ValueError: the updates differ in length.
    """
    if update.shape != other.shape:
        raise ValueError(f"updates of shapes {update.shape} and {other.shape} have no distance")
    difference = update.astype(np.float64) - other.astype(np.float64)
    return float(np.dot(difference, difference))


def committee_distances(distances: NDArray[np.float64], scoring: Scoring) -> NDArray[np.float64]:
    """Return each trainer's distance to the committee, from the members' published distances.

    The mean is summed member by member in the order given, so that everybody gets the same bits.

    Args:
        distances: D_k^c, shape (members, trainers), members in ascending client order.
        scoring: mean (the paper's) or median (survives lying members).

    Returns:
        Shape (trainers,).

    Raises:
        ValueError: there is no member.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    if scoring is Scoring.MEDIAN:
        return _median(distances)
    total = np.zeros(distances.shape[1])
    for row in distances:
        total = total + row
    return total / len(distances)


def score(distance: float) -> float:
    """Return the paper's P_k for a trainer's mean distance; infinite at distance 0."""
    return 1.0 / distance if distance else float("inf")


def spread_threshold(member_distances: list[NDArray[np.float64]]) -> float:
    """Return the largest distance that strategy III accepts.

    Args:
        member_distances: for each counted member c its distances to the other members, shape (·,).

    Returns:
        median(x) + λ · median(|x − median(x)|) with x_c the median of c's distances; 0.0 if no
        member has another to compare with.
    """
    medians = np.array([_median(row) for row in member_distances if len(row)])
    if not len(medians):
        return 0.0
    middle = _median(medians)
    return float(middle + SPREAD_FACTOR * _median(np.abs(medians - middle)))


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle value along the first axis, or (a + b) / 2 of the two."""
    ordered = np.sort(values, axis=0)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return np.asarray(ordered[half])
    return np.asarray((ordered[half - 1] + ordered[half]) / 2)
