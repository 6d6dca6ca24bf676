"""Whether a chain calls blocks final soon enough for its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.finality.rule import final_number

if TYPE_CHECKING:
    from ledger.chain.ports import Block, ChainReader


@dataclass(frozen=True, slots=True)
class FinalityLag:
    """How far what is final lies behind what is new.

    Attributes:
        final: the newest final block.
        newest: the newest block.
    """

    final: Block
    newest: Block

    @property
    def seconds(self) -> int:
        """How much older it is."""
        return self.newest.timestamp - self.final.timestamp

    def closed_too_early(self, window: int) -> str | None:
        """Return what to do where a worker would learn of each round after its window; else None.

        A worker acts on final blocks. One that sees a round open only when the round takes no
        commitments any more never trains for anybody, in no round, and nothing ever fails.

        Args:
            window: so many blocks after a round's opening one take commitments.
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
        """Return what to expect where a window's last commitments are seen after view 0 has begun.

        What was committed to is published once that is final, and view 0 begins `view_seconds`
        after the closing block: whoever comes later is left out of it, and its primary may have
        been silent for no other reason.

        Args:
            view_seconds: how long view 0 lasts, and how long after the closing block it begins.
        """
        if self.seconds < view_seconds:
            return None
        return (
            f"the newest final block is {self.seconds} s older than the newest one, and the first "
            f"view begins {view_seconds} s after a window has closed: unless no block has come for "
            "a while, what is committed last is left out of it, and it may pass before anybody acts"
        )


def finality_lag(chain: ChainReader, confirmations: int | None) -> FinalityLag:
    """Return how far what is final lies behind what is new.

    Args:
        chain: the node's.
        confirmations: how many blocks on top of a block make it final; None for what the chain
            calls finalized.

    Raises:
        ChainError: the chain is unreachable, or does not name a final block.
    """
    newest = chain.head()
    return FinalityLag(chain.block(final_number(chain, newest, confirmations)), newest)
