"""The rule for the newest final block."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.chain.ports import Block, ChainReader


def final_number(chain: ChainReader, newest: Block, confirmations: int | None) -> int:
    """Return the number of the newest final block.

    Args:
        chain: any.
        newest: its newest block, as the caller has seen it.
        confirmations: depth at which a block is final; None for the chain's own finality.

    Raises:
        ValueError: negative confirmations.
        ChainError: the chain is unreachable or damaged.
    """
    if confirmations is None:
        return min(chain.finalized(), newest.number)
    if confirmations < 0:
        raise ValueError(f"{confirmations} confirmations: there are none below 0")
    return max(0, newest.number - confirmations)


def final_block(chain: ChainReader, confirmations: int | None) -> Block:
    """Return the newest final block; see `final_number`."""
    return chain.block(final_number(chain, chain.head(), confirmations))
