"""Ancestry of blocks: whether the chain's newest block descends from an earlier one.

A block names its parent by hash, so descendants share everything below their ancestor. Most heads
directly follow the previous one, which needs no request; for others one block is requested, once
for all callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.ports import Block


class AncestryCheck:
    """Descent between blocks of one chain."""

    def __init__(self, block: Callable[[int], Block]) -> None:
        """Store how to read a block by number; nothing is requested yet."""
        self._block = block
        self._checked: tuple[bytes, bytes] | None = None
        self._answer = False

    def connects(self, older: Block, newest: Block) -> bool:
        """Return whether the chain's newest block is an earlier one, or descends from it.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """
        if older.hash in {newest.hash, newest.parent_hash}:
            return True
        if newest.number <= older.number:
            return False
        if self._checked != (older.hash, newest.hash):
            self._answer = self._block(older.number).hash == older.hash
            self._checked = older.hash, newest.hash
        return self._answer
