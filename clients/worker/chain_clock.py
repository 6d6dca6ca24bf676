"""The chain's seconds, as one process tells them.

Nothing that is signed holds a time, and nobody's clock is believed: a process is never behind a
block that it has seen, its time does not go back, and between two blocks it goes on by its own
steady clock. Only what a block has told that the chain does not have any more is forgotten: one
time stamp of the far future, by a node's mistake, would else leave its owner in the last view of
every round.

How far the chain's seconds are from ours is told by the blocks that come while we look: of the
newest of them, the one that was seen the soonest after its time. Older ones do not count, since a
chain may fall behind every wall clock little by little (a node that wants a block a second, and
needs longer for it), and whoever went by a wall clock then would find its views over before they
begin. Only before the first of these blocks, where nothing else is known, the wall clock counts;
what it has told is forgotten with that block, or a clock that is set wrong would leave its owner
ahead of all rounds until the chain has caught up. Nor does a block count that shares the second of
the one before: a node whose own clock was set back dates all of its blocks alike until that has
caught up, and the views have to go on meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.finality.latest_block import LatestBlock

if TYPE_CHECKING:
    from ledger.chain.ports import Block


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment, by the clocks of this machine.

    Attributes:
        wall: Unix seconds, as somebody may have set them.
        steady: seconds since anything, which nobody can set back.
    """

    wall: float
    steady: float


COUNTED_BLOCKS = 16
"""How many of the newest blocks with a second of their own tell the chain's time."""


class ChainClock:
    """Tells the chain's time."""

    def __init__(self) -> None:
        self._newest: Block | None = None
        self._latest = LatestBlock()
        # How far the chain's seconds are ahead of the steady ones: as the block has it that was
        # there when we came, of which nobody knows how old it was; and as the later ones have it.
        self._at_first = float("-inf")
        self._ahead: deque[float] = deque(maxlen=COUNTED_BLOCKS)
        self._last = float("-inf")

    def see(self, newest: Block, moment: Moment) -> None:
        """Take the newest block for the time, when it is first seen.

        Args:
            newest: the chain's newest block.
            moment: when it was read.
        """
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
        """Return the time in the chain's seconds.

        Args:
            moment: now, by this machine.
        """
        if self._ahead:
            told = max(self._ahead) + moment.steady
        else:
            told = max(moment.wall, self._at_first + moment.steady)
        self._last = max(self._last, told)
        return self._last
