"""A blob that comes piece by piece: bounded, hashed as it comes, and seen whole or not at all."""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING

from ledger.io.home import DISK, WRITING, Disk
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.types import Digest

FOLDER = "incoming"
"""Where bytes lie until they are whole, beside the folders that others read."""


class IncomingFile:
    """Bytes on their way into a folder.

    Every method may raise OSError where the folder cannot be written; nothing is left of a file
    that is discarded.

    Args:
        folder: of the store; a folder for what is not whole is made in it.
        digest: that the bytes must have.
        size: that they must have.
        disk: what is asked to write.
    """

    def __init__(self, folder: Path, digest: Digest, size: int, *, disk: Disk = DISK) -> None:
        self._disk = disk
        self._digest = digest
        self._size = self._left = size
        self._hash = hashlib.sha256()
        waiting = folder / FOLDER
        for path in (folder, waiting):
            if not path.is_dir():
                disk.make_folder(path)
        self._path = disk.create(waiting, b"")

    def write(self, piece: bytes) -> None:
        """Take the next bytes.

        Args:
            piece: some of them.

        Raises:
            EncodingError: there are more than were announced.
            OSError: they cannot be written.
        """
        self._left -= len(piece)
        if self._left < 0:
            raise EncodingError("there are more bytes than were announced")
        self._hash.update(piece)
        self._disk.append(self._path, piece)

    def finish(self, target: Path) -> None:
        """Give the bytes their name, durably, if they are those that were announced.

        Args:
            target: the name; its folders are made.

        Raises:
            EncodingError: they are not.
            OSError: they cannot be made durable, or not be named, or somebody has removed some.
        """
        if self._left:
            raise EncodingError(f"{self._left} bytes are missing of those that were announced")
        if self._hash.digest() != self._digest:
            raise EncodingError(f"the bytes have another sha256 than {self._digest.hex()}")
        # Who cleans up the folder meanwhile leaves no file, or what has come since then.
        if self._path.stat().st_size != self._size:
            raise OSError(errno.EIO, "what came was removed meanwhile", str(self._path))
        missing = [path for path in (target.parent, *target.parents) if not path.exists()]
        for path in reversed(missing):
            self._disk.make_folder(path)
        self._disk.sync_files([self._path])
        self._disk.rename(self._path, target)
        self._disk.sync([target])

    def discard(self) -> None:
        """Remove what is not whole, if it is there."""
        self._disk.remove(self._path)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process has left behind; nobody may be writing meanwhile.

    Args:
        folder: of the store.
    """
    for path in (folder / FOLDER).glob(f"{WRITING}*"):
        path.unlink(missing_ok=True)
