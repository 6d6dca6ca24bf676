"""Squared distances of a round's updates in NumPy, where nothing can be compiled.

Direct differences in blocks that stay in the processor's cache. A Gram matrix would be faster, but
loses the distances of updates that are nearly equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 8_192
"""Numbers of an update in one sum; the sums are added in order."""


class BlockedSquares:
    """The squares of one round's updates; a pair's bytes do not depend on the other updates.

    Args:
        updates: Δ of every client, each contiguous of shape (d,).
    """

    def __init__(self, updates: Sequence[NDArray[np.float32]], members: Sequence[int]) -> None:
        self._updates = updates
        self._members = members

    def squares(self, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the squared distances of all updates to the members'; see `PairSquares`."""
        count, rows = len(self._updates), sorted(set(self._members))
        # Of two members a pair is computed once: a - b and b - a have equal squares.
        pairs = [
            (row, one) for row in rows for one in range(count) if one not in rows or one >= row
        ]
        sums = np.zeros((count, count))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(norms):
                delta = np.empty(block.shape[1])
                for row, one in pairs:
                    np.subtract(block[one], block[row], out=delta)
                    sums[row, one] += np.dot(delta, delta)
        among = np.ix_(rows, rows)
        sums[among] += sums[among].T
        return sums[list(self._members)]

    def norms(self) -> NDArray[np.float64]:
        sums = np.zeros(len(self._updates))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(None):
                sums += [np.dot(row, row) for row in block]
        return np.sqrt(sums)

    def _blocks(self, norms: NDArray[np.float64] | None) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(self._updates[0]), BLOCK):
            parts = [update[start : start + BLOCK] for update in self._updates]
            block = np.array(parts, dtype=np.float64)
            yield block if norms is None else block / norms[:, None]
