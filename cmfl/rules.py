"""The rules of the protocol on plain arrays, as `ledger.protocol.rules` defines them.

Updates are the rows of a matrix of shape (n, d); references are the updates of the C committee
members, shape (C, d). Lists of vectors and CPU tensors do as well. Numbers are taken as float32,
which is what clients send; results are float64.

    distances = cmfl.rules.direction(updates, references)    # (C, n)
    scores = cmfl.rules.median(distances)                    # (n,), one per update, small is near
    accepted = cmfl.rules.nearest(scores, 3)                 # rows of the updates, best first

`accept` composes them as a committee does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmfl.inputs.arguments import WHOLE
from ledger.protocol.ranking import rank
from ledger.protocol.rules.distance import DistanceContext, plain_distances
from ledger.protocol.rules.registry import DISTANCES, SCORINGS, SELECTIONS
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "accept",
    "between_members",
    "direction",
    "distances",
    "farthest",
    "l2",
    "mean",
    "median",
    "nearest",
    "per_tensor",
    "squared",
    "within",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def squared(updates: ArrayLike, references: ArrayLike) -> Matrix:
    """Return ‖Δ_k − Δ_c‖², the paper's distance, shape (C, n).

    Args:
        updates: Δ_k, shape (n, d).
        references: Δ_c of each member, shape (C, d).

    Raises:
        ValueError: the shapes do not fit, or a number is not finite.
    """
    return distances("squared", updates, references)


def l2(updates: ArrayLike, references: ArrayLike) -> Matrix:
    """Return ‖Δ_k − Δ_c‖, which the authors' code takes, shape (C, n); see `squared`."""
    return distances("l2", updates, references)


def per_tensor(
    updates: ArrayLike, references: ArrayLike, shapes: Sequence[tuple[int, ...]]
) -> Matrix:
    """Return the sum of the tensors' Euclidean distances, shape (C, n).

    Args:
        updates: Δ_k, shape (n, d).
        references: Δ_c of each member, shape (C, d).
        shapes: of the tensors that a vector joins, d numbers in all.

    Raises:
        ValueError: the shapes do not fit, or a number is not finite.
    """
    rows, members = _rows(updates, references)
    try:
        layout = tuple((f"tensor {place}", tuple(shape)) for place, shape in enumerate(shapes))
        size = sum(int(np.prod(shape, dtype=np.int64)) for _, shape in layout)
    except (TypeError, ValueError) as error:
        raise ValueError(f"shapes = {shapes!r:.80}: must be a shape for each tensor") from error
    if size != rows.shape[1]:
        raise ValueError(f"the tensors have {size} numbers, and an update {rows.shape[1]}")
    return _distances("per_tensor", rows, members, DistanceContext(layout=layout))


def direction(updates: ArrayLike, references: ArrayLike) -> Matrix:
    """Return the distance of directions, ‖Δ_k/‖Δ_k‖ − Δ_c/‖Δ_c‖‖² · f_k, shape (C, n).

    f_k is above 1 for an update of over twice the median length of updates and references. An
    update or reference without a direction is at distance 4, that of opposite ones.

    Args:
        updates: Δ_k, shape (n, d).
        references: Δ_c of each member, shape (C, d).

    Raises:
        ValueError: the shapes do not fit, or a number is not finite.
    """
    return distances("direction", updates, references)


def distances(name: str, updates: ArrayLike, references: ArrayLike) -> Matrix:
    """Return distances by the name of their rule, as `protocol.distance` has it, shape (C, n).

    Raises:
        ValueError: there is no such rule, the shapes do not fit, or a number is not finite.
    """
    rows, members = _rows(updates, references)
    _require_known("distance", name, DISTANCES)
    layout = (("update", (rows.shape[1],)),)
    return _distances(name, rows, members, DistanceContext(layout=layout))


def between_members(name: str, references: ArrayLike) -> list[Vector]:
    """Return each member's distances to the others, as a threshold needs them.

    Returns:
        For each of the C members an array of shape (C − 1,), the others in their order.

    Raises:
        ValueError: there is no such rule, the shapes do not fit, or a number is not finite.
    """
    table = distances(name, references, references)
    return [np.delete(row, place) for place, row in enumerate(table)]


def mean(distances: ArrayLike) -> Vector:
    """Return the mean over members: shape (C, n) becomes (n,).

    Raises:
        ValueError: there is no member.
    """
    return SCORINGS["mean"].combine(_numbers("distances", distances))


def median(distances: ArrayLike) -> Vector:
    """Return the median over members, which a minority cannot move far: (C, n) becomes (n,).

    Raises:
        ValueError: there is no member.
    """
    return SCORINGS["median"].combine(_numbers("distances", distances))


def nearest(scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    """Return the rows of the nearest updates, best first (strategy I).

    Args:
        scores: one for each update, shape (n,), finite and at least 0; small is near.
        accepted: how many, 1 to n.

    Raises:
        ValueError: a score or the number is out of range.
    """
    return _selected(1, scores, accepted)


def farthest(scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    """Return the rows of the farthest updates, in ranking order (strategy II); see `nearest`."""
    return _selected(2, scores, accepted)


def within(scores: ArrayLike, accepted: int = 1) -> NDArray[np.intp]:
    """Return the rows of all updates at a distance below 2, best first (strategy III).

    Args:
        scores: one for each update, shape (n,), finite and at least 0.
        accepted: how many of the nearest are taken where none is below 2.

    Raises:
        ValueError: a score or the number is out of range.
    """
    return _selected(3, scores, accepted)


def accept(
    updates: ArrayLike,
    references: ArrayLike,
    *,
    strategy: int = 3,
    distance: str = "direction",
    scoring: str = "median",
    accepted: int = 1,
) -> NDArray[np.intp]:
    """Return the rows of the updates that an honest committee lets into the model, best first.

    Args:
        updates: of the trainers, shape (n, d).
        references: the members' own, shape (C, d).
        strategy: 1 nearest, 2 farthest, 3 at a distance below 2.
        distance: "squared", "l2" or "direction".
        scoring: "mean" or "median".
        accepted: how many strategies 1 and 2 take, and 3 where none is below 2.

    Raises:
        ValueError: a name is unknown, the shapes do not fit, or a number is out of range.
    """
    scores = _scoring(scoring).combine(distances(distance, updates, references))
    _require_known("strategy", strategy, SELECTIONS)
    return _selected(strategy, scores, accepted)


def _require_known(kind: str, name: object, known: Iterable[object]) -> None:
    names = [*known]
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r:.80}; known are {', '.join(map(str, names))}")


def _rows(updates: ArrayLike, references: ArrayLike) -> tuple[Any, Any]:
    """Return updates and references as float32 matrices."""
    rows, members = _matrix("updates", updates), _matrix("references", references)
    if rows.shape[1] != members.shape[1]:
        raise ValueError(f"updates of {rows.shape[1]} numbers and references of {members.shape[1]}")
    return rows, members


def _matrix(name: str, vectors: ArrayLike) -> NDArray[np.float32]:
    try:
        matrix = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: the vectors differ in length, or are no numbers") from error
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{name}: must be a matrix with a vector in each row, not {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name}: a number is not finite as float32")
    return matrix


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} = {values!r:.80}: must be numbers") from error
    if not array.ndim:
        raise ValueError(f"{name} = {values!r:.80}: must be an array, and is one number")
    return array


def _distances(
    name: str,
    rows: NDArray[np.float32],
    members: NDArray[np.float32],
    context: DistanceContext,
) -> Matrix:
    # As in a round: members are clients of their own, whose lengths count for the median.
    everybody = {ClientId(place): row for place, row in enumerate((*rows, *members))}
    seated = [ClientId(len(rows) + place) for place in range(len(members))]
    table = plain_distances(DISTANCES[name], context, everybody, seated)
    return table[:, : len(rows)]


def _selected(strategy: int, scores: ArrayLike, accepted: int) -> NDArray[np.intp]:
    values = _numbers("scores", scores)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"scores: must be one number for each update, not {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError("scores: each must be finite and at least 0")
    if not (WHOLE.holds(accepted) and 1 <= accepted <= len(values)):
        raise ValueError(f"accepted = {accepted!r}: must be 1 to {len(values)}, the updates")
    words = rank((ClientId(place), score) for place, score in enumerate(values.tolist()))
    chosen = SELECTIONS[strategy].select(words, accepted)
    return np.array(chosen, dtype=np.intp)


def _scoring(name: str) -> Any:
    _require_known("scoring", name, SCORINGS)
    return SCORINGS[name]
