"""The chain's time, as one process estimates it.

Nothing signed holds a time, and no clock is trusted. The estimate is never behind a block that was
seen, never goes back, and advances between blocks by the machine's steady clock. Only the time of a
block that the chain has dropped is forgotten: one time stamp of the far future, by a node's
mistake, would otherwise keep its owner in the last view of every round.

The offset to the steady clock comes from the newest blocks that arrived while polling: the one seen
soonest after its time stamp. Older blocks do not count, since a chain may fall behind wall clocks
gradually (a node that wants a block a second, and needs longer for it); by a wall clock its views
would be over before they begin. Before the first such block, the wall clock counts; its estimate is
dropped with that block, or a clock that is set wrong would keep its owner ahead of all rounds. A
block with the same second as its parent does not count either: a node whose own clock was set back
dates all of its blocks alike until that has caught up, and the views have to go on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ledger.chain.finality import LatestBlock
from ledger.chain.ports import Block


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by this machine's clocks.

    Attributes:
        wall: Unix seconds, as the machine's clock was set.
        steady: monotonic seconds.
    """

    wall: float
    steady: float


COUNTED_BLOCKS = 16
"""How many of the newest blocks with a second of their own tell the chain's time."""


class ChainClock:
    """An estimate of the chain's time."""

    def __init__(self) -> None:
        self._newest: Block | None = None
        self._latest = LatestBlock()
        # Offsets of the chain's seconds to the steady ones: by the first block seen, whose age is
        # unknown, and by later ones.
        self._at_first = float("-inf")
        self._ahead: deque[float] = deque(maxlen=COUNTED_BLOCKS)
        self._last = float("-inf")

    def see(self, newest: Block, moment: Moment) -> None:
        """Take the newest block and the moment at which it was read."""
        if self._latest.is_gone(newest):
            self._ahead.clear()
            self._at_first = self._last = float("-inf")
        if self._newest is None:
            self._at_first = newest.timestamp - moment.steady
        elif newest.timestamp != self._newest.timestamp:
            if not self._ahead:
                self._last = float("-inf")  # it may have been a wall clock's
            self._ahead.append(newest.timestamp - moment.steady)
        self._newest = newest

    def now(self, moment: Moment) -> float:
        """Return the time in the chain's seconds."""
        if self._ahead:
            estimate = max(self._ahead) + moment.steady
        else:
            estimate = max(moment.wall, self._at_first + moment.steady)
        self._last = max(self._last, estimate)
        return self._last
