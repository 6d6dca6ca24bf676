"""The updates of a round, or combinations of them, in float64 and a block at a time.

A pre-aggregator's vectors are means of updates: they are kept as coefficients and computed where
they are read, so that nothing is rounded in between and memory holds the float32 updates once.
Sums are in the order of the updates: the same bytes on any processor. Squared distances of updates
are compiled where possible, and differ from NumPy's in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.aggregators.sorting_network import rank_summer
from ledger.distances.composed_rules import is_vector
from ledger.distances.machine_code import NoMachineCodeError, machine_code
from ledger.distances.streaming import StreamedSquares

Vector = NDArray[np.float64]
Rows = Sequence[NDArray[np.floating]] | NDArray[np.float64]

BLOCK = 1 << 13
"""Numbers of each vector per block. Determines the order of a distance's sum."""


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
        """Check the shapes."""
        if not len(self.updates):
            raise ValueError("there is no update to aggregate")
        for place, update in enumerate(self.updates):
            if update.shape != (self.dimension,):
                raise ValueError(f"update {place} has shape {update.shape}")

    def __len__(self) -> int:
        """Return how many vectors there are."""
        return len(self.updates) if self.coefficients is None else len(self.coefficients)

    @property
    def dimension(self) -> int:
        """Return d."""
        return len(self.updates[0])

    def mixed(self, coefficients: NDArray[np.float64]) -> Mixture:
        """Return combinations of these vectors."""
        before = self.coefficients
        return Mixture(self.updates, coefficients if before is None else coefficients @ before)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield each block's slice and the vectors' numbers in it, shape (vectors, block)."""
        for part in self._parts():
            rows = np.stack([update[part] for update in self.updates], dtype=np.float64)
            yield part, rows if self.coefficients is None else _combined(self.coefficients, rows)

    def mean_of_ranks(self, first: int, last: int) -> Vector:
        """Return the mean of each coordinate's numbers of some ranks.

        Args:
            first: the lowest rank, from 0.
            last: after the highest rank, at most the number of vectors.

        Returns:
            Shape (d,).
        """
        summed = rank_summer(self.updates, first, last) if self.coefficients is None else None
        result = np.empty(self.dimension)
        if summed is not None:
            for part in self._parts():
                result[part] = summed(part)
        else:
            for part, rows in self._rows():
                result[part] = _ranked(rows, first, last).sum(axis=0, dtype=np.float64)
        result /= last - first
        return result

    def combined(self, weights: Vector) -> Vector:
        """Return the sum of the vectors, each times its weight.

        Args:
            weights: shape (vectors,).

        Returns:
            Shape (d,).
        """
        used = np.flatnonzero(weights).tolist()
        result, products = np.zeros(self.dimension), np.empty(min(BLOCK, self.dimension))
        for part, rows in self._rows():
            summed = result[part]
            for place in used:
                summed += np.multiply(weights[place], rows[place], out=products[: len(summed)])
        return result

    def distances_from(self, point: Vector) -> Vector:
        """Return the distance of each vector from a point.

        Args:
            point: shape (d,).

        Returns:
            Euclidean distances, shape (vectors,).
        """
        squares = np.zeros(len(self))
        for part, rows in self._rows():
            for place, row in enumerate(rows):
                squares[place] += np.square(row - point[part]).sum()
        return np.sqrt(squares)

    def squared_distances(self) -> NDArray[np.float64]:
        """Return the squared Euclidean distance of every two vectors, shape (vectors, vectors).

        Direct differences, each pair once: a Gram matrix would lose the distance of near ones. The
        loop over updates is compiled where that is possible.
        """
        if self.coefficients is None and all(map(is_vector, self.updates)):
            with suppress(NoMachineCodeError):
                updates = [np.ascontiguousarray(update) for update in self.updates]
                squares = StreamedSquares(machine_code(), 1, updates, range(len(updates)))
                return squares.squares()
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


def _ranked(rows: Rows, first: int, last: int) -> NDArray[np.floating]:
    """Return the numbers of some ranks at each coordinate, by sorting each one's contiguously."""
    columns = np.empty((len(rows[0]), len(rows)), dtype=np.result_type(*rows))
    for place, row in enumerate(rows):
        columns[:, place] = row
    columns.sort(axis=1)
    return np.ascontiguousarray(columns[:, first:last].T)


def _combined(coefficients: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return combinations of rows, added up row after row."""
    result = np.zeros((len(coefficients), rows.shape[1]))
    for column, row in zip(coefficients.T, rows, strict=True):
        used = np.flatnonzero(column)
        result[used] += column[used, None] * row
    return result
