"""Which block cannot be taken back any more: the one rule that all act by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.chain.ports import Block, ChainReader


def final_number(chain: ChainReader, newest: Block, confirmations: int | None) -> int:
    """Return the number of the newest block that is final: finalized, or so many blocks deep.

    A chain with a notion of its own says what is finalized. Who gives a depth has his own reasons,
    to wait for less or for more than that, and gets it.

    Args:
        chain: any.
        newest: its newest block, as whoever asks has seen it.
        confirmations: how many blocks on top of a block make it final; None for what the chain
            calls finalized.

    Raises:
        ValueError: fewer than no confirmations.
        ChainError: the chain is unreachable or damaged.
    """
    if confirmations is None:
        return min(chain.finalized(), newest.number)
    if confirmations < 0:
        raise ValueError(f"{confirmations} confirmations: there are none below 0")
    return max(0, newest.number - confirmations)


def final_block(chain: ChainReader, confirmations: int | None) -> Block:
    """Return the newest block that is final.

    Args:
        chain: any.
        confirmations: as for `final_number`.

    Raises:
        ValueError: fewer than no confirmations.
        ChainError: the chain is unreachable or damaged.
    """
    return chain.block(final_number(chain, chain.head(), confirmations))
