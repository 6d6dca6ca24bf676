"""Whether a chain calls blocks final soon enough for its rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.finality.rule import final_number

if TYPE_CHECKING:
    from ledger.chain.ports import ChainReader


def closed_too_early(chain: ChainReader, confirmations: int | None, window: int) -> str | None:
    """Return what to do where a worker would learn of each round after its window; else None.

    A worker acts on final blocks. One that sees a round open only when the round takes no
    commitments any more never trains for anybody, in no round, and nothing ever fails.

    Args:
        chain: the node's.
        confirmations: how many blocks on top of a block make it final; None for what the chain
            calls finalized.
        window: so many blocks after a round's opening one take commitments.

    Raises:
        ChainError: the chain is unreachable, or does not name a final block.
    """
    newest = chain.head()
    final = final_number(chain, newest, confirmations)
    behind = newest.number - final
    if behind < window:
        return None
    return (
        f"block {final} is the newest final one, {behind} behind block {newest.number}, and a "
        f"round takes commitments for {window} blocks only, which are over before it is seen: give "
        f"--confirmations N, well under {window}"
    )
