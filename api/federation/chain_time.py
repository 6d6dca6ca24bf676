"""The chain's time as an onlooker reports it: never ahead of its blocks.

By a wall clock every client would seem late where the chain falls behind, or where the onlooker's
clock is ahead. A worker has to keep up with the others (`clients/worker/chain_clock.py`); an
onlooker may be a block behind, and reports no client late too soon. Like a worker it drops the time
of a block that the chain does not have any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.finality.latest_block import LatestBlock

if TYPE_CHECKING:
    from ledger.chain.ports import Block


class ChainTime:
    """The newest block's time, and the seconds since it was first seen."""

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._latest = LatestBlock()
        self._ahead = 0.0
        self._last = 0.0

    def now(self, newest: Block, steady: float) -> float:
        """Return the time in the chain's seconds; it does not go back along one chain.

        Args:
            newest: the chain's newest block.
            steady: seconds of a monotonic clock.
        """
        if self._latest.is_gone(newest):
            self._last = 0.0
        if newest.hash != self._newest:
            self._newest, self._ahead = newest.hash, newest.timestamp - steady
        self._last = max(self._last, self._ahead + steady)
        return self._last
