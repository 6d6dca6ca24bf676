"""Strategy 3 by `docs/reference/protocol/rules.md` alone: plain Python, without NumPy and our code.

Names are the document's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Peers:
    """The table of strategy 3's distance; zeros have a distance alone."""

    b: float
    q: dict[int, float]
    base: float
    c: dict[int, float]
    f: dict[int, float]
    distances: dict[int, float]


def f32(number: float) -> float:
    """Return a number rounded to float32; infinite if it is too large."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def travel_of(w_o: Numbers, w_t: Numbers) -> Numbers | None:
    """Return h; None if there is none."""
    travel = tuple(f32(x - y) for x, y in zip(w_o, w_t, strict=True))
    return unit(travel) if any(travel) and all(map(math.isfinite, travel)) else None


def peers(updates: Mapping[int, Numbers], h: Numbers | None) -> Peers:
    """Return the values of the table for the usable updates of a set."""
    members = [k for k in sorted(updates) if any(updates[k])]
    u, count = {k: unit(updates[k]) for k in members}, len(members)
    a = {k: 0.0 if h is None else 1 - apart(u[k], h) / 2 for k in members}
    b = min(1.0, 5 * max(0.0, median(a.values()))) if h is not None and members else 0.0
    rho = {k: max(0.5, math.sqrt(max(0.0, 1 - a[k] ** 2))) for k in members}
    q = {
        k: math.fsum(
            max(0.0, (dot(u[k], u[j]) - a[k] * a[j]) / (rho[k] * rho[j])) ** 2
            for j in members
            if j != k
        )
        for k in members
    }
    base = base_of([q[k] for k in members])
    c = {k: max(1.0, q[k] / (2.5 * base)) for k in members}
    norms = {k: math.sqrt(dot(x, x)) for k, x in updates.items()}
    typical = median(norms.values())
    f = {k: max(1.0, norms[k] / (2 * typical)) ** 2 if typical else 1.0 for k in updates}
    distances = dict.fromkeys(updates, 4.0)
    for k in members:
        p = median([apart(u[k], u[j]) for j in members if j != k]) if count > 1 else 0.0
        mean = p if h is None else (p + b * apart(u[k], h)) / (1 + b)
        distances[k] = mean + (f[k] * c[k] ** 4 - 1)
    return Peers(b, q, base, c, f, distances)


def base_of(q: Sequence[float]) -> float:
    """Return the usual crowding."""
    count, ordered = len(q), sorted(q)
    if count < 2:
        return 0.001
    mid = median(q)
    lonely = [min(1.0, 1000 * mid) * min(1.0, max(0.0, 2 - 3 * x / mid)) if mid else 0 for x in q]
    pos = (count - 1) / 2 + math.fsum(lonely) / 2
    i = min(math.floor(pos), count - 2)
    return max(0.001, ordered[i] + (pos - i) * (ordered[i + 1] - ordered[i]))


def ranking_of(distances: Mapping[int, float]) -> list[int]:
    return sorted(bits(distance) << 32 | k for k, distance in distances.items())


def accepted_of(words: Sequence[int], first: int) -> list[int]:
    """Return S_a; the first so many if no distance is below 2."""
    near = [word & 0xFFFFFFFF for word in words if word >> 32 < 0x4000000000000000]
    return near or [word & 0xFFFFFFFF for word in words[:first]]


def bound_of(updates: Iterable[Numbers]) -> float:
    norms = sorted(map(exact_norm, updates))
    return norms[2 * (len(norms) - 1) // 5]


def next_model(w_t: Numbers, accepted: Iterable[int], updates: Mapping[int, Numbers]) -> Numbers:
    """Return w_{t+1} for a server rate of 1."""
    chosen, bound = sorted(accepted), bound_of(updates.values())
    total = [0.0] * len(w_t)
    for k in chosen:
        norm = exact_norm(updates[k])
        factor = 1 / len(chosen) * (1.0 if norm <= bound else bound / norm)
        total = [x + factor * y for x, y in zip(total, updates[k], strict=True)]
    return tuple(f32(x - 1.0 * y) for x, y in zip(w_t, total, strict=True))


def exact_norm(update: Numbers) -> float:
    return math.sqrt(math.fsum(x * x for x in update))


def bits(number: float) -> int:
    """Return the pattern of a float64."""
    return int(struct.unpack(">Q", struct.pack(">d", number))[0])


def unit(x: Numbers) -> Numbers:
    """Return a vector of length 1."""
    length = math.sqrt(dot(x, x))
    return tuple(number / length for number in x)


def dot(x: Numbers, y: Numbers) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def apart(x: Numbers, y: Numbers) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))
