"""The latest block that was seen, by its time stamp, for as long as the chain has it.

A node may tell one time stamp of the far future by mistake. Whoever goes by the latest time that
was seen needs to know when the chain does not have that block any more, or would be in the future
for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.chain.ports import Block


class LatestBlock:
    """Remembers the latest block."""

    def __init__(self) -> None:
        self._block: Block | None = None

    def is_gone(self, newest: Block) -> bool:
        """Return whether the latest block so far is not on the chain, and look at its newest one.

        Time stamps grow along a chain. So one that ends as high as the latest block, or higher, and
        earlier, does not hold it.

        Args:
            newest: the chain's newest block.
        """
        latest = self._block
        if latest is None or newest.number >= latest.number:
            self._block = newest
            return latest is not None and newest.timestamp < latest.timestamp
        if newest.timestamp > latest.timestamp:
            self._block = newest
        return False
