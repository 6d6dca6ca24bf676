"""Sums and sorted columns of many vectors, compiled where it can be."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.distances.fast import is_vector
from ledger.distances.machine_code import (
    NoMachineCodeError,
    StreamedSquares,
    linked_function,
    machine_code,
)

Network = NDArray[np.int64]
"""Comparators in order, shape (comparators, 2): the smaller number goes to the first row."""

STRIP = 64
"""Coordinates that a comparator orders at once."""

MOST_ROWS = 512
"""Of more updates NumPy's sort is as fast: a network's comparators grow as n log² n."""


def rank_summer(
    updates: Sequence[NDArray[Any]], first: int, last: int
) -> Callable[[slice], NDArray[np.float64]] | None:
    """Return a function that sums ranks in a block of the updates; None where NumPy must do it.

    Args:
        first: the lowest rank that is needed, from 0.

    Returns:
        From a block to the sum of each coordinate's numbers of these ranks, shape (block,).
    """
    code = _sorting_code()
    if code is None or len(updates) > MOST_ROWS or not all(map(is_vector, updates)):
        return None
    rows = [np.ascontiguousarray(row) for row in updates]
    addresses = np.array([row.ctypes.data for row in rows], dtype=np.uintp)
    comparators = network(len(rows), first, last) * (STRIP * rows[0].itemsize)
    buffer, sums = np.zeros((len(rows), STRIP), dtype=np.float32), np.zeros(STRIP)
    sum_ranks, _engine = code

    def summed(part: slice) -> NDArray[np.float64]:
        start, stop, _ = part.indices(len(rows[0]))
        result = np.empty(stop - start)
        sum_ranks(
            *(addresses.ctypes.data, len(addresses)),
            *(comparators.ctypes.data, len(comparators)),
            *(start, stop, buffer.ctypes.data, sums.ctypes.data, result.ctypes.data, first, last),
        )
        return result

    return summed


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
    return np.array(comparators[::-1], dtype=np.int64).reshape(-1, 2)


def _merge_exchange(rows: int) -> Iterable[tuple[int, int]]:
    half = 1 << max(0, (rows - 1).bit_length() - 1)
    p = half
    while p > 0:
        q, r, d = half, 0, p
        while d > 0:
            yield from ((i, i + d) for i in range(rows - d) if i & p == r)
            d, q, r = q - p, q >> 1, p
        p >>= 1


@cache
def _sorting_code() -> tuple[Callable[..., None], object] | None:
    """Return the loop and the engine that holds it; None where nothing can be compiled."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    takes = (pointer, number) * 2 + (number, number, pointer, pointer, pointer, number, number)
    return linked_function(_SORTING_LOOP, "sum_ranks", *takes)


_SORTING_LOOP = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Sorts coordinates [start, stop) of the rows, and sums ranks [first, last) of each.
define void @sum_ranks(ptr %rows, i64 %row_count, ptr %comparators, i64 %comparator_count,
    i64 %start, i64 %stop, ptr noalias %buffer, ptr noalias %sums, ptr noalias %result,
    i64 %first, i64 %last) {{
entry:
  br label %step

step:
  %at = phi i64 [%start, %entry], [%next, %store]
  %is_left = icmp slt i64 %at, %stop
  br i1 %is_left, label %load_all, label %end

load_all:
  %left = sub i64 %stop, %at
  %is_full = icmp sge i64 %left, {STRIP}
  %numbers = select i1 %is_full, i64 {STRIP}, i64 %left
  %bytes = mul i64 %numbers, 4
  br label %load

load:
  %row = phi i64 [0, %load_all], [%next_row, %load]
  %row_at = getelementptr ptr, ptr %rows, i64 %row
  %row_start = load ptr, ptr %row_at
  %source = getelementptr float, ptr %row_start, i64 %at
  %row_offset = mul i64 %row, {STRIP}
  %target = getelementptr float, ptr %buffer, i64 %row_offset
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  %next_row = add i64 %row, 1
  %is_row = icmp slt i64 %next_row, %row_count
  br i1 %is_row, label %load, label %compare_all

compare_all:
  %is_any = icmp sgt i64 %comparator_count, 0
  br i1 %is_any, label %compare, label %add

compare:
  %number = phi i64 [0, %compare_all], [%next_number, %compare]
  %low_place = mul i64 %number, 2
  %low_at = getelementptr i64, ptr %comparators, i64 %low_place
  %high_at = getelementptr i64, ptr %low_at, i64 1
  %low_offset = load i64, ptr %low_at
  %high_offset = load i64, ptr %high_at
  %low = getelementptr i8, ptr %buffer, i64 %low_offset
  %high = getelementptr i8, ptr %buffer, i64 %high_offset
  %a = load <{STRIP} x float>, ptr %low, align 4
  %b = load <{STRIP} x float>, ptr %high, align 4
  %is_less = fcmp olt <{STRIP} x float> %a, %b
  %smaller = select <{STRIP} x i1> %is_less, <{STRIP} x float> %a, <{STRIP} x float> %b
  %is_more = fcmp ogt <{STRIP} x float> %b, %a
  %larger = select <{STRIP} x i1> %is_more, <{STRIP} x float> %b, <{STRIP} x float> %a
  store <{STRIP} x float> %smaller, ptr %low, align 4
  store <{STRIP} x float> %larger, ptr %high, align 4
  %next_number = add i64 %number, 1
  %is_number = icmp slt i64 %next_number, %comparator_count
  br i1 %is_number, label %compare, label %add

add:
  %rank = phi i64 [%first, %compare_all], [%first, %compare], [%next_rank, %add]
  %sum = phi <{STRIP} x double> [zeroinitializer, %compare_all],
    [zeroinitializer, %compare], [%next_sum, %add]
  %rank_offset = mul i64 %rank, {STRIP}
  %sorted = getelementptr float, ptr %buffer, i64 %rank_offset
  %ranked = load <{STRIP} x float>, ptr %sorted, align 4
  %wide = fpext <{STRIP} x float> %ranked to <{STRIP} x double>
  %next_sum = fadd <{STRIP} x double> %sum, %wide
  %next_rank = add i64 %rank, 1
  %is_rank = icmp slt i64 %next_rank, %last
  br i1 %is_rank, label %add, label %store

store:
  store <{STRIP} x double> %next_sum, ptr %sums, align 8
  %done = sub i64 %at, %start
  %written = getelementptr double, ptr %result, i64 %done
  %sum_bytes = mul i64 %numbers, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %written, ptr %sums, i64 %sum_bytes, i1 false)
  %next = add i64 %at, {STRIP}
  br label %step

end:
  ret void
}}
"""


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
