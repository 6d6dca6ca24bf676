"""The files of a mailbox in anything that fsspec reaches."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ledger.storage.mailboxes.files import FileMailbox, FoundFile

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ledger.storage.bucket import RemoteFiles


class RemoteMailbox(FileMailbox):
    """A mailbox below a URL, which may be that of the blobs."""

    def __init__(self, files: RemoteFiles) -> None:
        """Look at a place.

        Args:
            files: of the place.
        """
        super().__init__(_RemoteMail(files))


class _RemoteMail:
    """Reads and writes files below a URL."""

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files

    def found(self, folder: str, most: int, known: Container[str]) -> Iterator[FoundFile]:
        """Yield at most so many files of a folder, those that are known left out."""
        for name, size, stamp in islice(self._files.listing(folder), most):
            if name not in known:
                yield FoundFile(name, size, stamp)

    def read(self, path: str, limit: int) -> bytes:
        """Return what a file holds, and one byte more than the limit if there is more."""
        return self._files.read(path, limit)

    def write(self, path: str, data: bytes) -> None:
        """Write a file."""
        self._files.write(path, data)
