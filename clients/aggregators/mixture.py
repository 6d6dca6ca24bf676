"""Sums, distances and ranked coordinates of a round's updates, and of combinations of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ledger.distances.fast import fast_distances
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import ClientId

Network = tuple[tuple[int, int], ...]
"""Comparators in order: the smaller number goes to the first row."""

MOST_ROWS = 512
"""Of more vectors NumPy's sort is as fast: a network's comparators grow as n log² n."""

Vector = NDArray[np.float64]
Rows = Sequence[NDArray[np.floating]] | NDArray[np.float64]

BLOCK = 1 << 13
"""Numbers of each vector per block. Determines the order of a distance's sum."""

_squares = fast_distances()


@lru_cache(maxsize=8)
def network(rows: int, first: int, last: int) -> Network:
    """Return a network after which rows [first, last) hold the numbers of these ranks.

    It is Batcher's merge exchange (Knuth, The Art of Computer Programming 5.2.2, Algorithm M)
    without the comparators that no needed rank depends on.
    """
    comparators, needed = [], set(range(first, last))
    for low, high in reversed(list(_merge_exchange(rows))):
        if low in needed or high in needed:
            comparators.append((low, high))
            needed |= {low, high}
    return tuple(comparators[::-1])


def _merge_exchange(rows: int) -> Iterator[tuple[int, int]]:
    half = 1 << max(0, (rows - 1).bit_length() - 1)
    p = half
    while p > 0:
        q, r, d = half, 0, p
        while d > 0:
            yield from ((i, i + d) for i in range(rows - d) if i & p == r)
            d, q, r = q - p, q >> 1, p
        p >>= 1


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Vectors that are combinations of updates.

    Attributes:
        updates: Δ of each client, by ascending client, each of shape (d,), finite.
        coefficients: of each vector, one number for each update, shape (vectors, updates);
            None where the vectors are the updates themselves.
    """

    updates: Sequence[NDArray[np.float32]]
    coefficients: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if not len(self.updates):
            raise ValueError("there is no update to aggregate")
        for place, update in enumerate(self.updates):
            if update.shape != (self.dimension,):
                raise ValueError(f"update {place} has shape {update.shape}")

    def __len__(self) -> int:
        return len(self.updates) if self.coefficients is None else len(self.coefficients)

    @property
    def dimension(self) -> int:
        return len(self.updates[0])

    def mixed(self, coefficients: NDArray[np.float64]) -> Mixture:
        before = self.coefficients
        return Mixture(self.updates, coefficients if before is None else coefficients @ before)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield each block's slice and the vectors' numbers in it, shape (vectors, block)."""
        for part in self._parts():
            rows = np.stack([update[part] for update in self.updates], dtype=np.float64)
            yield part, rows if self.coefficients is None else _combined(self.coefficients, rows)

    def mean_of_ranks(self, first: int, last: int) -> Vector:
        """Return the mean of each coordinate's numbers of the ranks [first, last), shape (d,)."""
        result = np.zeros(self.dimension)
        for part, rows in self._rows():
            for ranked in _ranked(rows, first, last):
                result[part] += ranked
        result /= last - first
        return result

    def combined(self, weights: Vector) -> Vector:
        """Return the sum of the vectors, each times its weight, shape (d,)."""
        used = np.flatnonzero(weights).tolist()
        result, products = np.zeros(self.dimension), np.empty(min(BLOCK, self.dimension))
        for part, rows in self._rows():
            summed = result[part]
            for place in used:
                summed += np.multiply(weights[place], rows[place], out=products[: len(summed)])
        return result

    def distances_from(self, point: Vector) -> Vector:
        """Return the Euclidean distance of each vector from a point of shape (d,)."""
        squares = np.zeros(len(self))
        for part, rows in self._rows():
            for place, row in enumerate(rows):
                squares[place] += np.square(row - point[part]).sum()
        return np.sqrt(squares)

    def squared_distances(self) -> NDArray[np.float64]:
        """Return the squared Euclidean distance of every two vectors, shape (vectors, vectors).

        Direct differences, each pair once: a Gram matrix would lose the distance of near ones.
        """
        if self.coefficients is None:
            clients = [ClientId(place) for place in range(len(self))]
            return _squares(SQUARED, None, dict(zip(clients, self.updates, strict=True)), clients)
        total = np.zeros((len(self), len(self)))
        for _, rows in self.blocks():
            for place, row in enumerate(rows[:-1]):
                total[place, place + 1 :] += np.square(rows[place + 1 :] - row).sum(axis=1)
        return total + total.T

    def sources(self, places: Iterable[int]) -> tuple[int, ...]:
        """Return the places of the updates that some of the vectors are made of, ascending."""
        if self.coefficients is None:
            return tuple(sorted(set(places)))
        chosen = self.coefficients[sorted(set(places))]
        return tuple(np.flatnonzero((chosen != 0).any(axis=0)).tolist())

    def _rows(self) -> Iterator[tuple[slice, Rows]]:
        if self.coefficients is not None:
            yield from self.blocks()
        else:
            yield from ((part, [update[part] for update in self.updates]) for part in self._parts())

    def _parts(self) -> Iterator[slice]:
        for start in range(0, self.dimension, BLOCK):
            yield slice(start, min(start + BLOCK, self.dimension))


def _ranked(rows: Rows, first: int, last: int) -> Sequence[NDArray[np.floating]]:
    """Return the numbers of the ranks [first, last) at each coordinate."""
    if len(rows) > MOST_ROWS:
        return list(np.sort(np.array(rows), axis=0)[first:last])
    ordered, spare = [row.copy() for row in rows], np.empty_like(rows[0])
    for low, high in network(len(rows), first, last):
        smaller, larger = ordered[low], ordered[high]
        np.minimum(smaller, larger, out=spare)
        np.maximum(smaller, larger, out=larger)
        ordered[low], spare = spare, smaller
    return ordered[first:last]


def _combined(coefficients: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return combinations of rows, added up row after row."""
    result = np.zeros((len(coefficients), rows.shape[1]))
    for column, row in zip(coefficients.T, rows, strict=True):
        used = np.flatnonzero(column)
        result[used] += column[used, None] * row
    return result
