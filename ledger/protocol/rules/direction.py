"""Strategy III (ours): direction against the round's other updates, crowding, and the clip.

Late in training honest updates are nearly orthogonal, so the distance also compares each update
with the model's recent travel, which is much longer than any one update. Attackers who pull
together crowd, however small the angle that each shows to a member. Length counts only above twice
the round's median. All members compute the same numbers, from all usable updates of the round.

The clip decides how much of a long accepted update enters the model. The model is voted on bit for
bit, so the norms are exact, and no order of summation is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import frexp, fsum, isfinite, ldexp, sqrt

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.types import ClientId

RESIDUAL_FLOOR = 0.5  # least length ρ of a residual, so that an update along the travel is safe
BASE_FLOOR = 1e-3  # least base B
ALLOWANCE = 2.5  # multiples of the base up to which crowding costs nothing
CERTAINTY_SLOPE = 1000.0  # from a median of 1 / 1000 on, the lonely shift the base in full


@dataclass(frozen=True, slots=True, eq=False)
class Crowding:
    """Crowding of the updates that have a direction, in their given order."""

    values: NDArray[np.float64]  # q, shape (n,)
    base: float
    excess: NDArray[np.float64]  # max(1, q / (2.5 B)), shape (n,)

    @property
    def factors(self) -> NDArray[np.float64]:
        """Return g = excess⁴, the square of the square, shape (n,)."""
        squares = self.excess * self.excess
        return np.asarray(squares * squares)


def crowding_of(cosines: NDArray[np.float64], alignments: NDArray[np.float64]) -> Crowding:
    """Return updates' crowding, from ⟨u_k, u_j⟩, shape (n, n), and ⟨u_k, h⟩ or zeros, (n,)."""
    lengths = np.maximum(RESIDUAL_FLOOR, np.sqrt(np.maximum(0.0, 1.0 - alignments * alignments)))
    residuals = cosines - alignments[:, None] * alignments[None, :]
    residuals = residuals / (lengths[:, None] * lengths[None, :])
    shared = np.square(np.maximum(0.0, residuals))
    np.fill_diagonal(shared, 0.0)
    values = shared.sum(axis=0)
    base = base_of(values)
    return Crowding(values, base, np.maximum(1.0, values / (ALLOWANCE * base)))


def base_of(values: NDArray[np.float64]) -> float:
    """Return B, the median crowding q of the updates that are not lonely, made continuous.

    Zeros and pure noise are lonely, and would lower a plain median. Each update is lonely to a
    degree: fully below a third of the median, not at all from two thirds of it on.
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
    """Return the median along the last axis; of few numbers faster than `np.median`."""
    ordered = np.sort(values)
    half = ordered.shape[-1] // 2
    middle = ordered[..., half]
    return np.asarray(middle if ordered.shape[-1] % 2 else (ordered[..., half - 1] + middle) / 2)


OPPOSITE_DISTANCE = 4.0  # squared, of opposite directions, and of an update without one
RIGHT_ANGLE = 2.0  # squared, of orthogonal directions; strategy III accepts what is below
ABSOLUTE_TOLERANCE = 1e-9
"""Absolute part of the margin, times f and the fifth power of crowding's excess: g is the fourth,
and where the base lies between two distant values, g's relative error grows with it once more."""

WINDOW = 20  # rounds of travel that updates are compared with; fewer in the first rounds
SLOPE = 5.0  # weight of the travel for each unit of the updates' agreement with it
_PART = 1 << 15
"""Numbers of the updates that are multiplied at a time. One sum over all of them would absorb small
terms: an update that begins with most of its length could be so made that honest members differ.
`_sums_of_squares` is exact only up to this number."""


@dataclass(frozen=True, slots=True, eq=False)
class DirectionDistances:
    """Distances of a round's updates, clients ascending."""

    distances: NDArray[np.float64]  # shape (n,)
    margins: NDArray[np.float64]  # absolute part of each margin, shape (n,)


def window_start(round_number: int) -> int:
    """Return s, the round whose model the travel of a round starts from; 1 at first."""
    return max(1, round_number - WINDOW)


def displacement(before: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return w_s − w_t, one float32 subtraction each; all zeros where one of them is not finite."""
    if before.shape != now.shape:
        raise ValueError(f"models of shapes {before.shape} and {now.shape} differ")
    with np.errstate(over="ignore", invalid="ignore"):
        difference = before.astype(np.float32) - now.astype(np.float32)
    return difference if np.isfinite(difference).all() else np.zeros_like(difference)


def travel_weight(alignments: NDArray[np.float64]) -> float:
    """Return b = min(1, 5 · max(0, A)), A the median of ⟨u_k, h⟩; 0 without any.

    Updates against the travel, or across it, give it no weight: attackers may have led the model.
    """
    agreement = float(median(alignments)) if len(alignments) else 0.0
    return min(1.0, SLOPE * max(0.0, agreement))


def compared(
    norms: NDArray[np.float64],
    squares: NDArray[np.float64],
    from_travel: NDArray[np.float64] | None = None,
) -> DirectionDistances:
    """Return (median ‖u_k − u_j‖² + b ‖u_k − h‖²) / (1 + b) + f_k g_k − 1 of each update.

    `norms` are ‖Δ_k‖, shape (n,). n' updates are not zeros. Their `squares` are ‖u_k − u_j‖², shape
    (n', n'). Their `from_travel` is ‖u_k − h‖², None without a travel that has a direction.
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
    """Return the distances of a round's usable updates; the plain, binding code."""
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
    """Return each update's median squared distance from the others; 0 of one that is alone."""
    count = len(squares)
    if count < 2:
        return np.zeros(count)
    others = squares[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    return median(others)


def norm_of(update: NDArray[np.float32], size: int = _PART) -> float:
    """Return ‖Δ‖, accumulated in float64 over parts of this size."""
    if len(update) <= size:
        whole = update.astype(np.float64)
        return sqrt(np.dot(whole, whole))
    parts = (update[part].astype(np.float64) for part in _parts(update, size))
    return sqrt(sum(float(np.dot(part, part)) for part in parts))


def _parts(update: NDArray[np.float32], size: int = _PART) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, len(update), size))


_ONE_THREAD = 1 << 13  # numbers that NumPy's BLAS multiplies on one thread
_FEW = 128  # numbers whose squares `fsum` adds sooner than levels do
_NOT_FINITE = "an update that is not finite has no norm"
_ROUGH = 1e-9  # part of a norm by which one that is summed in float64 differs from it at most

Vectors = Mapping[ClientId, "NDArray[np.float32]"]


def clip_factors(accepted: Vectors, updates: Vectors) -> dict[ClientId, float]:
    """Return min(1, t / ‖Δ_k‖) of each accepted update, t the two-fifths quantile of all norms.

    An attacker with half of a round's updates decides which are accepted, but not t: up to three
    fifths that are too long, or two fifths that are too short, leave it between honest lengths.
    """
    # A rough norm is cheaper, and decides which clients need no exact one.
    rough = {client: norm_of(update, _ONE_THREAD) for client, update in updates.items()}
    place = quantile_place(len(rough))
    middle = sorted(rough.values())[place]
    shorter = {client for client, norm in rough.items() if norm < middle * (1 - _ROUGH)}
    near = {client for client, norm in rough.items() if norm <= middle * (1 + _ROUGH)} - shorter
    length = sorted(exact_norm(updates[client]) for client in near)[place - len(shorter)]
    norms = {
        client: rough[client] if client in shorter else exact_norm(update)
        for client, update in accepted.items()
    }
    return {client: 1.0 if norm <= length else length / norm for client, norm in norms.items()}


def quantile_place(count: int) -> int:
    """Return the place of the clip length among a number of ascending norms, from 0."""
    return 2 * (count - 1) // 5


def exact_norm(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖ of d ≤ 2^28 finite numbers: the root of the exact sum of squares, rounded once."""
    if len(update) <= _FEW:
        total = fsum(np.square(update, dtype=np.float64).tolist())
        if not isfinite(total):
            raise ValueError(_NOT_FINITE)
        return sqrt(total)
    sums, error = _sums_of_squares(update, 1)
    least, most = fsum([*sums, -error]), fsum([*sums, error])
    # Both round to one number, except where the sum is almost halfway between two.
    return sqrt(least if least == most else fsum(_sums_of_squares(update)[0]))


def _sums_of_squares(
    update: NDArray[np.float32], levels: int | None = None
) -> tuple[list[float], float]:
    """Return numbers whose sum is Σ Δ_i², and a bound of its error: 0 without a limit of levels.

    A square is exact in float64. To add a unit 2^(e + 16) and to subtract it again leaves the upper
    36 bits of each square below 2^e. 2^15 of them are summed without an error, in any order. The
    rest of the squares is exact too, and is below 2^(e - 37): the next level.
    """
    sums, error = [], 0.0
    rests, uppers = np.empty((2, min(len(update), _PART)))
    for part in _parts(update):
        count = len(update[part])
        rest, upper = rests[:count], uppers[:count]
        np.copyto(rest, update[part])
        np.multiply(rest, rest, out=rest)
        largest = float(rest.max())
        if not isfinite(largest):
            raise ValueError(_NOT_FINITE)
        exponent, level = frexp(largest)[1], 0
        while largest and (rest.any() if levels is None else level < levels):
            unit = ldexp(1.0, exponent + 16)
            np.add(rest, unit, out=upper)
            np.subtract(upper, unit, out=upper)
            sums.append(float(upper.sum()))
            np.subtract(rest, upper, out=rest)
            exponent, level = exponent - 37, level + 1
        if largest and levels is not None:
            sums.append(float(rest.sum()))
            # 2^15 rests are below 2^(e + 15) together, and each addition errs by 2^-53 of it.
            error += ldexp(1.0, exponent - 21)
    return sums, error
