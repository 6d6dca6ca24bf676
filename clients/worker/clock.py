"""The chain's seconds, as one process tells them.

Nothing that is signed holds a time, and nobody's clock is believed: a process is never behind a
block that it has seen, its time never goes back, and between two blocks it goes on by its own
steady clock. A wall clock that is ahead of the chain's puts its owner into later views than the
others, until views have grown longer than the difference; one that is behind does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


class ChainClock:
    """Tells the chain's time."""

    def __init__(self) -> None:
        self._newest: tuple[bytes, float] | None = None
        self._ahead = float("-inf")  # how far the chain's seconds are ahead of the steady ones
        self._last = float("-inf")

    def see(self, newest: Block, moment: Moment) -> None:
        """Take the newest block for the time, when it is first seen.

        Args:
            newest: the chain's newest block.
            moment: when it was read.
        """
        if self._newest is None or self._newest[0] != newest.hash:
            self._newest = (newest.hash, moment.steady)
            self._ahead = max(self._ahead, newest.timestamp - moment.steady)

    def now(self, moment: Moment) -> float:
        """Return the time in the chain's seconds.

        Args:
            moment: now, by this machine.
        """
        self._last = max(self._last, moment.wall, self._ahead + moment.steady)
        return self._last
