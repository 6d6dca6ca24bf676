"""The references `own`, `travel`, `crowd` and `peers`, as `docs/protocol.md` has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MEMBERS, TRAINERS = 12, 18
RULES = ("fedavg", "own", "travel", "crowd", "peers")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Distances of a round and what they are made of; without h, b is 0."""

    b: float
    base: float
    crowding: Array  # q and g of the updates that are not zero, f of all
    crowding_factor: Array
    length_factor: Array
    distances: Array  # (members, updates)


def scores(rule: str, updates: Array, members: Array, travel: Array | None) -> Scores:
    """Return the members' distances of all updates; numbers are those of the rule's steps.

    Args:
        rule: `own`, `travel`, `crowd` or `peers`.
        updates: a round's updates, one a row.
        members: rows of the members.
        travel: w_s - w_t; None in the first round.
    """
    is_crowd = rule in {"crowd", "peers"}
    lengths = np.linalg.norm(updates, axis=1)
    used = np.flatnonzero(lengths)
    units = updates[used] / lengths[used, None]  # 1
    along, b = np.zeros(len(used)), 0.0
    far = 0.0 if travel is None else float(np.linalg.norm(travel))
    if rule != "own" and travel is not None and 0 < far < np.inf:
        along = units @ (travel / far)
        asked = along if is_crowd else along[np.isin(used, members)]
        most, slope = (1.0, 5.0) if rule == "peers" else (3.0, 150.0)
        b = min(most, slope * max(0.0, float(np.median(asked)))) if len(asked) else 0.0  # 2
    cosines = units @ units.T
    rest = np.maximum(0.5, np.sqrt(np.maximum(0, 1 - along**2)))  # 3
    residual = (cosines - np.outer(along, along)) / np.outer(rest, rest)
    np.fill_diagonal(residual, 0)
    q = (np.maximum(0, residual) ** 2).sum(axis=1)  # 4
    base = _base(q)
    g = np.maximum(1, q / (2.5 * base)) ** 4  # 6
    middle = float(np.median(lengths))
    f = np.maximum(1, lengths / (2 * middle)) ** 2 if middle else np.ones(len(lengths))
    apart = 2 - 2 * cosines
    if rule == "peers" and len(used):
        others = apart[~np.eye(len(used), dtype=bool)].reshape(len(used), -1)
        apart[:] = np.median(others, axis=1) if len(used) > 1 else 0  # the same for all members
    of_used = (apart + b * (2 - 2 * along)) / (1 + b)
    of_used = of_used + (f[used] * g - 1) if is_crowd else of_used * f[used]  # 7
    distances = np.full((len(updates), len(updates)), 4.0)
    distances[np.ix_(used, used)] = of_used
    return Scores(b, base, q, g, f, distances[members])


def _base(q: Array) -> float:
    """Return the median crowding of those who are not lonely (step 5)."""
    if len(q) < 2:
        return 1e-3
    middle = float(np.median(q))
    lonely = min(1, 1000 * middle) * np.clip(2 - 3 * q / middle, 0, 1) if middle else 0 * q
    place = (len(q) - 1 + float(lonely.sum())) / 2
    i = min(int(place), len(q) - 2)
    low, high = np.sort(q)[i : i + 2]
    return float(max(1e-3, low + (place - i) * (high - low)))


def decide(
    rule: str, updates: Array, members: Array, trainers: Array, travel: Array | None
) -> tuple[Array, Array]:
    """Return the accepted rows and those of the next committee (step 8); FedAvg accepts all."""
    if rule == "fedavg":
        return trainers, members
    voting = members[np.any(updates[members], axis=1)]  # a member that sent zeros has no vector
    distances = scores(rule, updates, voting, travel).distances
    score = np.median(distances[:, trainers], axis=0)
    ranking = trainers[np.argsort(score, kind="stable")]
    first = (len(trainers) - MEMBERS) // 2
    near = int(np.count_nonzero(score < 2))
    return ranking[: near or 7], ranking[first : first + MEMBERS]


def clipped(updates: Array) -> Array:
    """Return a round's updates, those longer than two fifths of them shortened to that length."""
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    longest = np.sort(lengths, axis=0)[2 * (len(lengths) - 1) // 5]
    shortened = np.maximum(lengths, longest)
    return np.asarray(updates * longest / np.where(shortened > 0, shortened, 1))


def unit(rows: Array) -> Array:
    """Return vectors along the last axis at length 1, zeros as they are."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
