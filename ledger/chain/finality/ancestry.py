"""Whether a chain's newest block stands on one that was seen before.

A block names its parent by hash, so whoever stands on a block has all that is below it in common
with it. Most heads follow the one before, which shows without a question; of others one block is
asked for, once for all who want to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.ports import Block


class AncestryCheck:
    """Tells which blocks stand on which."""

    def __init__(self, block: Callable[[int], Block]) -> None:
        """Take note of a chain; nothing is asked yet.

        Args:
            block: returns the chain's block of a number.
        """
        self._block = block
        self._asked: tuple[bytes, bytes] | None = None
        self._answer = False

    def connects(self, older: Block, newest: Block) -> bool:
        """Say whether the chain's newest block is an older one, or stands on it.

        Args:
            older: seen before.
            newest: the chain's head, just seen.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """
        if older.hash in {newest.hash, newest.parent_hash}:
            return True
        if newest.number <= older.number:
            return False
        if self._asked != (older.hash, newest.hash):
            self._answer = self._block(older.number).hash == older.hash
            self._asked = older.hash, newest.hash
        return self._answer
