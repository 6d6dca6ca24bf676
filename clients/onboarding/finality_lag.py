"""Lag of final blocks, compared with a run's window and views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.finality.rule import final_number

if TYPE_CHECKING:
    from ledger.chain.ports import Block, ChainReader


@dataclass(frozen=True, slots=True)
class FinalityLag:
    """Lag of the newest final block behind the newest block.

    Attributes:
        final: the newest final block.
        newest: the newest block.
    """

    final: Block
    newest: Block

    @property
    def seconds(self) -> int:
        """Difference of the time stamps."""
        return self.newest.timestamp - self.final.timestamp

    def closed_too_early(self, window: int) -> str | None:
        """Return advice if a worker would see each round after its window; None otherwise.

        A worker acts on final blocks. If it sees a round open only after its window, it never
        trains for
        any client, and no error ever shows that.

        Args:
            window: blocks after a round's opening one in which commitments are accepted.
        """
        behind = self.newest.number - self.final.number
        if behind < window:
            return None
        return (
            f"block {self.final.number} is the newest final one, {behind} behind block "
            f"{self.newest.number}, and a round takes commitments for {window} blocks only, which "
            f"are over before it is seen: give --confirmations N, well under {window}"
        )

    def seen_too_late(self, view_seconds: int) -> str | None:
        """Return a warning if the last commitments are seen after view 0 starts; None otherwise.

        Updates are published once their commitments are final, and view 0 begins `view_seconds`
        after the
        closing block: a late member is left out of it, and its primary may be silent for that
        reason only.
        """
        if self.seconds < view_seconds:
            return None
        return (
            f"the newest final block is {self.seconds} s older than the newest one, and the first "
            f"view begins {view_seconds} s after a window has closed: unless no block has come for "
            "a while, the last commitments miss that view, and it may end before any member acts"
        )


def finality_lag(chain: ChainReader, confirmations: int | None) -> FinalityLag:
    """Return the lag on a node's chain.

    Args:
        chain: the node's.
        confirmations: blocks on top of a final block; None for the chain's own finality.

    Raises:
        ChainError: the chain is unreachable, or does not name a final block.
    """
    newest = chain.head()
    return FinalityLag(chain.block(final_number(chain, newest, confirmations)), newest)
