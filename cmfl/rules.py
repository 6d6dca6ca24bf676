"""The rules of the protocol on plain arrays, as `ledger.protocol.rules` defines them.

Updates are the rows of a matrix of shape (n, d); references are the updates of the C committee
members, shape (C, d). Lists of vectors and CPU tensors do as well. Numbers are taken as float32,
which is what clients send; results are float64.

    distances = cmfl.rules.squared(updates, references)      # (C, n)
    scores = cmfl.rules.mean(distances)                      # (n,), one per update, small is near
    accepted = cmfl.rules.nearest(scores, 3)                 # rows of the updates, best first

`accept` composes them as a committee does. Strategies 1 and 2 have no defence against attackers
among the members.

A function raises ValueError for an unknown name, shapes that do not fit, and a number that is not
finite or out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmfl.arguments import WHOLE
from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.rules.distance import squared_distance
from ledger.protocol.rules.selection import SELECTIONS, mean_distances, rank
from ledger.protocol.types import AcceptanceForm, ClientId

__all__ = ["accept", "direction", "farthest", "mean", "nearest", "squared", "within"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Distance = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""A user's own distance: from an update (d,) and references (C, d) to distances (C,)."""


def squared(updates: ArrayLike, references: ArrayLike) -> Matrix:
    """Return ‖Δ_k − Δ_c‖², the paper's distance, shape (C, n), of updates (n, d) and members."""
    rows, members = _rows(updates, references)
    table = [[squared_distance(row, member) for row in rows] for member in members]
    return np.array(table, dtype=np.float64)


def direction(updates: ArrayLike, references: ArrayLike, travel: ArrayLike | None = None) -> Vector:
    """Return strategy 3's distance of each update, shape (n,); it is equal for all members.

    It is the median squared distance of an update's direction from the directions of the round's
    other updates, including the members', and of the model's travel, if there is one. Crowds and
    updates of over twice the median length are farther. An update of zeros is at distance 4.

    Args:
        updates: Δ_k, shape (n, d).
        references: Δ_c of each member, shape (C, d).
        travel: w_s − w_t, the way of the model from the current round's start to an earlier one,
            shape (d,); None in the first round.
    """
    rows, members = _rows(updates, references)
    way = None if travel is None else matrix("travel", np.asarray([travel]))[0]
    if way is not None and way.shape != rows[0].shape:
        raise ValueError(f"travel: has {len(way)} numbers, and an update {rows.shape[1]}")
    everybody = {ClientId(place): row for place, row in enumerate((*rows, *members))}
    return direction_distances(everybody, way).distances[: len(rows)]


def mean(distances: ArrayLike) -> Vector:
    """Return the mean over members: shape (C, n) becomes (n,)."""
    return mean_distances(numbers("distances", distances))


def nearest(scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    """Return the rows of the nearest updates, best first (strategy 1).

    Scores have the shape (n,), are finite and at least 0; small is near. 1 to n are accepted.
    """
    return _selected(1, scores, accepted)


def farthest(scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    """Return the rows of the farthest updates, in ranking order (strategy 2); see `nearest`."""
    return _selected(2, scores, accepted)


def within(scores: ArrayLike, accepted: int = 1) -> NDArray[np.intp]:
    """Return the rows of all updates at a distance below 2, best first (strategy 3).

    If no score of `direction` is below 2, the `accepted` nearest are returned.
    """
    return _selected(3, scores, accepted)


def accept(
    updates: ArrayLike,
    references: ArrayLike,
    *,
    strategy: int = 3,
    distance: str | Distance = "squared",
    travel: ArrayLike | None = None,
    accepted: int = 1,
) -> NDArray[np.intp]:
    """Return the rows of the updates that an honest committee lets into the model, best first.

    Args:
        updates: trainers' updates, shape (n, d).
        references: members' own updates, shape (C, d).
        strategy: 1 nearest, 2 farthest (both if no attackers are among the members), 3 within a
            right angle of the round's peers.
        distance: distance of strategies 1 and 2: "squared" or your own function.
        travel: travel of the model, for strategy 3; see `direction`.
        accepted: number of updates for strategies 1 and 2, and for 3 if no score is below 2.
    """
    if not (WHOLE.holds(strategy) and strategy in {1, 2, 3}):
        raise ValueError(f"strategy = {strategy!r:.80}: must be 1, 2 or 3")
    is_usual = isinstance(distance, str) and distance == "squared"
    if strategy == 3:
        if not is_usual:
            raise ValueError(
                f"distance = {distance!r:.80}: applies to strategies 1 and 2 only; strategy 3 "
                "always measures directions"
            )
        return within(direction(updates, references, travel), accepted)
    if is_usual:
        table = squared(updates, references)
    elif callable(distance):
        rows, members = (each.astype(np.float64) for each in _rows(updates, references))
        columns = [numbers("distances", distance(row, members)) for row in rows]
        if any(column.shape != (len(members),) for column in columns):
            raise ValueError(f"distances: the function must return {len(members)} numbers")
        table = np.array(columns).T
        if not (np.isfinite(table).all() and (table >= 0).all()):
            raise ValueError("distances: each must be finite and at least 0")
    else:
        raise ValueError(f"distance = {distance!r:.80}: must be 'squared' or a function")
    return _selected(strategy, mean(table), accepted)


def _rows(updates: ArrayLike, references: ArrayLike) -> tuple[Any, Any]:
    rows, members = matrix("updates", updates), matrix("references", references)
    if rows.shape[1] != members.shape[1]:
        raise ValueError(f"updates of {rows.shape[1]} numbers and references of {members.shape[1]}")
    return rows, members


def matrix(name: str, vectors: Any, *, keeps_float64: bool = False) -> NDArray[Any]:
    """Return vectors as the rows of a finite matrix of float32, or of their own precision."""
    try:
        rows = np.asarray(vectors, dtype=None if keeps_float64 else np.float32)
        if rows.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
            rows = rows.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: the vectors differ in length, or are not numbers") from error
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"{name}: must be a matrix with a vector in each row, not {rows.shape}")
    if not all(np.isfinite(row).all() for row in rows):  # a row at a time, in less memory
        raise ValueError(f"{name}: a number is not finite as {rows.dtype}")
    return rows


def numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an array of numbers as float64."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} = {values!r:.80}: must be numbers") from error
    if not array.ndim:
        raise ValueError(f"{name} = {values!r:.80}: must be an array, not one number")
    return array


def _selected(strategy: int, scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    values = numbers("scores", scores)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"scores: must be one number for each update, not {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError("scores: each must be finite and at least 0")
    if not (WHOLE.holds(accepted) and 1 <= accepted <= len(values)):
        raise ValueError(f"accepted = {accepted!r}: must be 1 to {len(values)}, the updates")
    words = rank((ClientId(place), score) for place, score in enumerate(values.tolist()))
    chosen = SELECTIONS[AcceptanceForm(strategy)](words, accepted)
    return np.array(chosen, dtype=np.intp)
