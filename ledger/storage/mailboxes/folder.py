"""The files of a mailbox in a folder of this machine, or of a file system that it has mounted."""

from __future__ import annotations

import os
import re
import shutil
from itertools import islice
from typing import TYPE_CHECKING

from ledger.io.home import DISK, Disk, read_file
from ledger.storage.mailboxes.files import FileMailbox, FoundFile, run_folder

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from ledger.protocol.types import Domain

_ROUND = re.compile("0|[1-9][0-9]{0,19}")


class FolderMailbox(FileMailbox):
    """A mailbox below a folder, which may be that of the blobs."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        """Look at a folder.

        Args:
            folder: made on the first write.
            disk: what is asked to write.
        """
        super().__init__(_FolderFiles(folder, disk))
        self._folder = folder

    def remove(self, domain: Domain, before_round: int) -> list[int]:
        """Remove the mail of old rounds for everybody, and return the rounds.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.

        Raises:
            OSError: some of it cannot be removed; the rest is.
        """
        self.forget(domain, before_round)
        mail = self._folder / run_folder(domain)
        names = [path.name for path in mail.glob("*") if _ROUND.fullmatch(path.name)]
        old = sorted(number for number in map(int, names) if number < before_round)
        faults: list[OSError] = []
        for number in old:
            try:
                shutil.rmtree(mail / str(number))
            except FileNotFoundError:
                continue  # somebody else removes it, too
            except OSError as error:
                faults.append(error)  # and what one cannot be rid of keeps no other
        if faults:
            raise faults[0]
        return old


class _FolderFiles:
    """Reads and writes files below a folder."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    def found(self, folder: str, most: int, known: Container[str]) -> Iterator[FoundFile]:
        """Yield at most so many files of a folder, those that are known left out."""
        try:
            entries = os.scandir(self._folder / folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in islice(entries, most):
                if entry.name in known:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield FoundFile(entry.name, status.st_size, (status.st_size, status.st_mtime_ns))

    def read(self, path: str, limit: int) -> bytes:
        """Return what a file holds, and one byte more than the limit if there is more."""
        return read_file(self._folder / path, limit)

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole and durably."""
        self._disk.write_whole(self._folder / path, data)
