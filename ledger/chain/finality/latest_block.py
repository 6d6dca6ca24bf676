"""The block with the latest time stamp, as long as the chain has it.

A node may report a time stamp in the far future by mistake. A clock that follows the latest time
has to know when the chain no longer has that block, or it would stay in the future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.chain.ports import Block


class LatestBlock:
    """Memory of the latest block."""

    def __init__(self) -> None:
        self._block: Block | None = None

    def is_gone(self, newest: Block) -> bool:
        """Return whether the latest block so far has left the chain; remember the newest.

        Time stamps increase along a chain: one that is at least as high and earlier does not
        contain it.
        """
        latest = self._block
        if latest is None or newest.number >= latest.number:
            self._block = newest
            return latest is not None and newest.timestamp < latest.timestamp
        if newest.timestamp > latest.timestamp:
            self._block = newest
        return False
