"""Squared distances of a round's updates, streamed from where they lie by the compiled loop.

Every core takes one range of the updates' numbers after the other. The ranges do not depend on how
many cores there are, and their sums are added in the order of the numbers.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from ledger.distances.machine_code import BLOCK, LANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ledger.distances.composed_rules import Matrix
    from ledger.distances.machine_code import MachineCode

RANGE = 1 << 16
"""Numbers of an update that one core takes at a time. Orders the sum."""


class StreamedSquares:
    """The updates of one round; a pair's squares have the same bytes whoever else there is.

    Attributes:
        dimension: d.
        members: places of the members among the updates.
    """

    def __init__(
        self,
        code: MachineCode,
        threads: int,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        """Take the updates in hand; none is copied.

        Args:
            code: the compiled loop.
            threads: how many cores may be used.
            updates: Δ of every client, each of shape (d,) and contiguous.
            members: places of the members among them.
        """
        self.dimension = len(updates[0])
        self.members = members
        self._code = code
        self._threads = threads
        self._updates = updates  # kept alive as long as addresses of them are in use
        self._addresses = [update.ctypes.data for update in updates]

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates from all members', over [start, stop).

        Args:
            start: first number of the updates that counts.
            stop: first one after it that does not.
            norms: what each update is divided by first, shape (clients,); None for nothing.

        Returns:
            Shape (members, clients).

        Raises:
            ValueError: these are no numbers of the updates.
        """
        if not 0 <= start <= stop <= self.dimension:
            raise ValueError(f"numbers {start} to {stop} of updates of {self.dimension}")
        first = sorted(set(self.members))
        order = first + [place for place in range(len(self._updates)) if place not in set(first)]
        addresses = [self._addresses[place] for place in order]
        divisors = None if norms is None else norms[order]
        found = self._summed(addresses, len(first), (start, stop), divisors)
        # Of two members a pair is computed once: a − b and b − a have equal squares.
        among = np.triu(found[:, : len(first)])
        found[:, : len(first)] = among + np.triu(among, 1).T
        columns = np.argsort(order)
        return found[[first.index(member) for member in self.members]][:, columns]

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""
        nothing = [0] * self._code.tile
        found = self._summed(nothing + self._addresses, 1, (0, self.dimension), None)
        return np.sqrt(found[0, self._code.tile :])

    def _summed(
        self,
        addresses: list[int],
        above: int,
        span: tuple[int, int],
        norms: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return the sums of the first `above` addresses with all; 0 stands for zeros.

        Args:
            addresses: of the updates.
            above: how many of them, from the first on, are compared with all.
            span: start and stop.
            norms: what each is divided by first, None for nothing.

        Returns:
            Shape (above, addresses); what is left of the diagonal means nothing.
        """
        work = _Work(self._code, addresses, above, norms, self._threads)
        total = np.zeros((above, len(addresses)))
        for part in _mapped(work, *span, self._threads):
            total += part
        return total


def _mapped(work: _Work, start: int, stop: int, threads: int) -> Iterator[NDArray[np.float64]]:
    """Yield the sums over each range, in the order of the ranges."""
    ranges = [(first, min(first + RANGE, stop)) for first in range(start, stop, RANGE)]
    if threads == 1 or len(ranges) < 2:
        yield from (work(*one) for one in ranges)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead = deque(pool.submit(work, *one) for one in ranges[: 2 * threads])
        for one in ranges[2 * threads :]:
            yield ahead.popleft().result()
            ahead.append(pool.submit(work, *one))
        while ahead:
            yield ahead.popleft().result()


class _Work:
    """The compiled loop over ranges of the numbers, with room for so many at a time."""

    def __init__(
        self,
        code: MachineCode,
        addresses: list[int],
        above: int,
        norms: NDArray[np.float64] | None,
        threads: int,
    ) -> None:
        tile = code.tile
        self._code = code
        self._above, self._count = above, len(addresses)
        self._groups, self._groups_above = -(-self._count // tile), -(-above // tile)
        padding = self._groups * tile - self._count
        self._addresses = np.array(addresses + [0] * padding, dtype=np.uintp)
        self._norms = None if norms is None else np.append(norms, np.ones(padding))
        self._blocks: SimpleQueue[NDArray[np.float64]] = SimpleQueue()
        for _ in range(threads):
            self._blocks.put(np.empty(self._groups * tile * BLOCK))

    def __call__(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the sums over [start, stop)."""
        tile, block = self._code.tile, self._blocks.get()
        sums = np.zeros((self._groups_above * tile, self._groups * tile, LANES))
        self._code.add_squares(
            self._addresses.ctypes.data,
            self._groups,
            self._groups_above,
            start,
            stop,
            0 if self._norms is None else self._norms.ctypes.data,
            block.ctypes.data,
            sums.ctypes.data,
        )
        self._blocks.put(block)
        parts = sums[: self._above, : self._count]
        while parts.shape[-1] > 1:
            half = parts.shape[-1] // 2
            parts = parts[..., :half] + parts[..., half:]
        return parts[..., 0]
