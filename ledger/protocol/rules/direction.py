"""Strategy III's distance, ours: the direction of an update against the round's other updates.

Late in training honest updates are nearly orthogonal, so the distance also compares each update
with the model's recent travel, which is much longer than any one update and which everybody can
compute. Attackers who pull together crowd. Length counts only above twice the round's median.
All members compute the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.crowding import crowding_of, median
from ledger.protocol.types import ClientId

OPPOSITE_DISTANCE = 4.0
"""Squared distance of opposite directions; also of an update that has no direction."""

RIGHT_ANGLE = 2.0
"""Squared distance of orthogonal directions; strategy III accepts what is below."""

ABSOLUTE_TOLERANCE = 1e-9
"""Absolute part of the margin, times f and the fifth power of crowding's excess: g is the fourth,
and where the base lies between two distant values, g's relative error grows with it once more."""

WINDOW = 20
"""Rounds of travel that updates are compared with; fewer in the first rounds."""

SLOPE = 5.0
"""Weight of the travel for each unit of the updates' agreement with it."""

_PART = 1 << 15
"""Numbers of the updates that are multiplied at a time. One sum over all of them would absorb small
terms: an update that begins with most of its length could be so made that honest members differ."""


@dataclass(frozen=True, slots=True, eq=False)
class DirectionDistances:
    """Distances of a round's updates, clients ascending.

    Attributes:
        distances: of each update, shape (n,).
        margins: absolute part of each margin, shape (n,).
    """

    distances: NDArray[np.float64]
    margins: NDArray[np.float64]


def window_start(round_number: int) -> int:
    """Return s, the round whose model the travel of a round starts from; 1 at first."""
    return max(1, round_number - WINDOW)


def displacement(before: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return w_s − w_t, which points as the updates do that made it.

    Each number is one subtraction in float32; all zeros, which have no direction, where one of
    them is not finite.
    """
    if before.shape != now.shape:
        raise ValueError(f"models of shapes {before.shape} and {now.shape} differ")
    with np.errstate(over="ignore", invalid="ignore"):
        difference = before.astype(np.float32) - now.astype(np.float32)
    return difference if np.isfinite(difference).all() else np.zeros_like(difference)


def travel_weight(alignments: NDArray[np.float64]) -> float:
    """Return b = min(1, 5 · max(0, A)), A the median of ⟨u_k, h⟩; 0 without any.

    Updates against the travel, or across it, give it no weight: where attackers once led the
    model, the travel is theirs.
    """
    agreement = float(median(alignments)) if len(alignments) else 0.0
    return min(1.0, SLOPE * max(0.0, agreement))


def compared(
    norms: NDArray[np.float64],
    squares: NDArray[np.float64],
    from_travel: NDArray[np.float64] | None = None,
) -> DirectionDistances:
    """Return (median ‖u_k − u_j‖² + b ‖u_k − h‖²) / (1 + b) + f_k g_k − 1 of each update.

    Args:
        norms: ‖Δ_k‖, shape (n,).
        squares: ‖u_k − u_j‖² of all pairs of the updates that are not zeros, shape (n', n').
        from_travel: ‖u_k − h‖² of these, shape (n',); None without a travel that has a direction.
    """
    directed, factors = np.flatnonzero(norms), length_factors(norms)
    alignments = np.zeros(len(directed)) if from_travel is None else 1 - from_travel / 2
    middle = median_from_others(squares)
    b = travel_weight(alignments)
    if from_travel is not None and b:
        middle = (middle + b * from_travel) / (1 + b)
    crowding = crowding_of(1 - squares / 2, alignments)
    distances, margins = np.full(len(norms), OPPOSITE_DISTANCE), ABSOLUTE_TOLERANCE * factors
    distances[directed] = middle + (factors[directed] * crowding.factors - 1)
    margins[directed] *= crowding.excess**5
    return DirectionDistances(distances, margins)


def direction_distances(
    updates: Mapping[ClientId, NDArray[np.float32]], travel: NDArray[np.float32] | None
) -> DirectionDistances:
    """Return the distances of a round's usable updates, by the plain, binding code.

    Args:
        updates: each of shape (d,).
        travel: w_s − w_t, shape (d,); None in the first round. Zeros have no effect.
    """
    rows = [updates[client] for client in sorted(updates)]
    has_travel = travel is not None and bool(travel.any())
    among = [*rows, travel] if travel is not None and has_travel else rows
    if len({row.shape for row in among}) > 1:
        raise ValueError("the updates and the travel differ in length")
    norms = np.array([norm_of(row) for row in among])
    directed = [row for row in among if row.any()]
    lengths, cosines = norms[norms != 0][:, None], np.zeros((len(directed), len(directed)))
    for part in _parts(directed[0]) if directed else ():
        units = np.stack([row[part] for row in directed]) / lengths
        cosines += units @ units.T
    squares = np.maximum(0.0, 2 - 2 * cosines)
    if not has_travel:
        return compared(norms, squares)
    return compared(norms[:-1], squares[:-1, :-1], squares[-1, :-1])


def length_factors(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f = max(1, ‖Δ‖ / (2 t))² of each update, t the median norm; 1 where t is 0."""
    typical = float(median(norms)) if len(norms) else 0.0
    with np.errstate(invalid="ignore"):  # ∞ / ∞ is no excess
        excess = np.fmax(1.0, norms / (2 * typical)) if typical else np.ones_like(norms)
    return np.asarray(excess * excess)


def median_from_others(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each update's median squared distance from the others; 0 of one that is alone.

    Args:
        squares: ‖u_k − u_j‖² of all pairs, shape (n, n).
    """
    count = len(squares)
    if count < 2:
        return np.zeros(count)
    others = squares[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    return median(others)


def norm_of(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, accumulated in float64."""
    return sqrt(sum(_square(update[part].astype(np.float64)) for part in _parts(update)))


def _square(vector: NDArray[np.float64]) -> float:
    return float(np.dot(vector, vector))


def _parts(update: NDArray[np.float32]) -> Iterator[slice]:
    return (slice(start, start + _PART) for start in range(0, len(update), _PART))
