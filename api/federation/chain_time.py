"""The chain's seconds, as somebody tells them who looks on: never ahead of what its blocks say.

By a wall clock a federation whose chain falls behind would seem late altogether, and so would one
that is looked at from a machine whose clock is ahead. A worker has to keep up with the others
(`clients/worker/chain_clock.py`); who looks on may be a block behind, and calls nobody late too
soon.
Like a worker it forgets what a block has told that the chain does not have any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.finality.latest_block import LatestBlock

if TYPE_CHECKING:
    from ledger.chain.ports import Block


class ChainTime:
    """Tells the chain's time: the newest block's, and what has passed since it was first seen."""

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._latest = LatestBlock()
        self._ahead = 0.0
        self._last = 0.0

    def now(self, newest: Block, steady: float) -> float:
        """Return the time in the chain's seconds; it does not go back along one chain.

        Args:
            newest: the chain's newest block.
            steady: seconds since anything, by a clock that nobody can set.
        """
        if self._latest.is_gone(newest):
            self._last = 0.0
        if newest.hash != self._newest:
            self._newest, self._ahead = newest.hash, newest.timestamp - steady
        self._last = max(self._last, self._ahead + steady)
        return self._last
