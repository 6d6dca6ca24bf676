"""Whether a chain still has what was read of it, and if not, up to where it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.ports import NotServedError
from ledger.index.errors import IndexStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.ports import Block, ChainReader


class FinalBlockChangedError(IndexStoreError):
    """The chain has taken back a block that was final: it is another chain, or an older copy."""


def common_ancestor(
    chain: ChainReader,
    head: Block,
    checkpoints: Sequence[tuple[int, bytes]],
    *,
    final: int,
    start: int,
) -> int | None:
    """Return the newest block known to be on the chain still, None if nothing was taken back.

    A block's hash commits to all blocks before it, so one that is still there vouches for them. A
    chain that is shorter than what was read takes nothing back: a node may be behind.

    Args:
        chain: as it is now.
        head: its newest block.
        checkpoints: numbers and hashes of blocks that were read through, the newest first.
        final: up to where the chain has said that nothing can change.
        start: the block before the deployment's.

    Raises:
        NotServedError: the chain ends before what it has called final.
        FinalBlockChangedError: it has another block there.
    """
    if head.number < min(final, max((number for number, _ in checkpoints), default=start)):
        raise NotServedError(
            f"the chain ends with block {head.number}, and block {final} was final before: the "
            "node is far behind, or the chain was rolled back"
        )
    reached = [one for one in checkpoints if one[0] <= head.number]
    for place, (number, block_hash) in enumerate(reached):
        found = head.hash if number == head.number else chain.block(number).hash
        if found == block_hash:
            return None if place == 0 else number
        if number <= final:
            raise FinalBlockChangedError(
                f"block {number} was final with hash 0x{block_hash.hex()}, and is 0x{found.hex()} "
                "now: the index is of another chain, or the chain was rolled back; drop the index "
                "and build it again"
            )
    return start if reached else None
