"""Mail of rounds long over that auditors still read: the boards that were read last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ledger.protocol.encoding import sha256
from ledger.storage.folder import FolderObjects
from ledger.storage.mailbox import EPOCH_BYTES, ObjectMailbox

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.storage.mailbox import Board

BOARDS = 8
"""Old boards in memory, each within the bounds of a reader."""


class OldBoards:
    """The boards of a store's folder that were read last; safe to share between threads.

    A board that was dropped is read anew, perhaps in another order: its pages then have another
    epoch, and a reader begins it again.

    Args:
        folder: of the store.
        epoch: random bytes of this process.
    """

    def __init__(self, folder: Path, epoch: bytes) -> None:
        self._folder = folder
        self._epoch = epoch
        self._opened = 0
        self._boards: OrderedDict[Board, tuple[bytes, ObjectMailbox]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, board: Board) -> tuple[bytes, ObjectMailbox]:
        """Return the epoch of a board's numbering, and the mailbox that reads the board."""
        with self._lock:
            if board not in self._boards:
                self._opened += 1
                epoch = sha256(self._epoch + self._opened.to_bytes(8))[:EPOCH_BYTES]
                self._boards[board] = epoch, ObjectMailbox(FolderObjects(self._folder))
            self._boards.move_to_end(board)
            if len(self._boards) > BOARDS:
                self._boards.popitem(last=False)
            return self._boards[board]
