"""Squared distances of a round's updates, computed in place by the compiled loop.

Each core takes one range of numbers after another. The ranges do not depend on the number of cores,
and their sums are added in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from ledger.distances.machine_code import BLOCK, LANES, MachineCode

RANGE = 1 << 16
"""Numbers of an update that one core takes at a time. Determines the order of the sum."""


class StreamedSquares:
    """The squares of one round's updates; a pair's bytes do not depend on the other updates."""

    def __init__(
        self,
        code: MachineCode,
        threads: int,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        """Store the updates without copying.

        Args:
            updates: Δ of every client, each contiguous of shape (d,).
        """
        self._dimension = len(updates[0])
        self._members = members
        self._code = code
        self._threads = threads
        self._updates = updates  # kept alive as long as addresses of them are in use
        self._addresses = [update.ctypes.data for update in updates]

    def squares(self, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the squared distances of all updates to the members'.

        Args:
            norms: divisor of each update, shape (clients,); None for no division.
        """
        members = set(self._members)
        first = sorted(members)
        order = first + [row for row in range(len(self._updates)) if row not in members]
        addresses = [self._addresses[row] for row in order]
        divisors = None if norms is None else norms[order]
        matrix = self._summed(addresses, len(first), divisors)
        # Of two members a pair is computed once: a − b and b − a have equal squares.
        among = np.triu(matrix[:, : len(first)])
        matrix[:, : len(first)] = among + np.triu(among, 1).T
        return matrix[np.searchsorted(first, self._members)][:, np.argsort(order)]

    def norms(self) -> NDArray[np.float64]:
        nothing = [0] * self._code.tile
        sums = self._summed(nothing + self._addresses, 1, None)
        return np.sqrt(sums[0, self._code.tile :])

    def _summed(
        self, addresses: list[int], members: int, norms: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Return the sums of the first `members` addresses with all; address 0 is a zero vector.

        Args:
            norms: divisor of each update; None for no division.

        Returns:
            Shape (members, addresses); values left of the diagonal are undefined.
        """
        work = _Work(self._code, addresses, members, norms, self._threads)
        total = np.zeros((members, len(addresses)))
        for part in _mapped(work, self._dimension, self._threads):
            total += part
        return total


def _mapped(work: _Work, stop: int, threads: int) -> Iterator[NDArray[np.float64]]:
    """Yield the sums over each range, in the order of the ranges."""
    ranges = [(first, min(first + RANGE, stop)) for first in range(0, stop, RANGE)]
    if threads == 1 or len(ranges) < 2:
        yield from (work(*range_) for range_ in ranges)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead = deque(pool.submit(work, *range_) for range_ in ranges[: 2 * threads])
        for range_ in ranges[2 * threads :]:
            yield ahead.popleft().result()
            ahead.append(pool.submit(work, *range_))
        while ahead:
            yield ahead.popleft().result()


class _Work:
    """The compiled loop over ranges of the numbers, with one buffer per thread."""

    def __init__(
        self,
        code: MachineCode,
        addresses: list[int],
        members: int,
        norms: NDArray[np.float64] | None,
        threads: int,
    ) -> None:
        tile = code.tile
        self._code = code
        self._members, self._count = members, len(addresses)
        self._groups, self._member_groups = -(-self._count // tile), -(-members // tile)
        padding = self._groups * tile - self._count
        self._addresses = np.array(addresses + [0] * padding, dtype=np.uintp)
        self._norms = None if norms is None else np.append(norms, np.ones(padding))
        self._blocks: SimpleQueue[NDArray[np.float64]] = SimpleQueue()
        for _ in range(threads):
            self._blocks.put(np.empty(self._groups * tile * BLOCK))

    def __call__(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the sums over [start, stop)."""
        tile, block = self._code.tile, self._blocks.get()
        sums = np.zeros((self._member_groups * tile, self._groups * tile, LANES))
        self._code.add_squares(
            self._addresses.ctypes.data,
            self._groups,
            self._member_groups,
            start,
            stop,
            0 if self._norms is None else self._norms.ctypes.data,
            block.ctypes.data,
            sums.ctypes.data,
        )
        self._blocks.put(block)
        parts = sums[: self._members, : self._count]
        while parts.shape[-1] > 1:
            half = parts.shape[-1] // 2
            parts = parts[..., :half] + parts[..., half:]
        return parts[..., 0]
