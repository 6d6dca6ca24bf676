"""Objects as files below a folder of this machine, or of a file system that it has mounted.

Writes are atomic: a reader sees the whole file or none. A killed process loses nothing that it has
put; a power cut takes what was put neither durably nor before a `sync`, which costs many files
hardly more than one. Write permission to the folder includes deleting and filling it.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from itertools import islice
from pathlib import Path

from ledger.io.home import DISK, Disk, read_file
from ledger.protocol.encoding import sha256
from ledger.protocol.payload import Payload
from ledger.storage.objects import MAX_FOLDER_OBJECTS, FolderCursor, deliver_listing, verified


class FolderObjects:
    """Files below a folder, which is made on the first write."""

    is_shared = True

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        self.folder = folder
        self._disk = disk
        self._unsynced: set[Path] = set()

    def get(self, path: str, limit: int) -> bytes:
        """Return an object, verified against its name."""
        return verified(path, read_file(self.folder / path, limit), limit)

    def has(self, path: str) -> bool:
        """Return whether there is a file."""
        return (self.folder / path).is_file()

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        """Store an object; return False if it was there."""
        target = self.folder / path
        is_new = not _holds(target, payload)
        if is_new:
            self._disk.write_whole(target, payload.data, durable=durable)
        if not durable:
            # Even if it was there: its writer may have been killed before it was durable.
            self._unsynced.add(target)
        return is_new

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        """Give a cursor the objects of a folder that are new to it."""
        path = self.folder / folder
        deliver_listing(
            _new_files(path, cursor), lambda name, limit: read_file(path / name, limit), cursor
        )

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._disk.remove(self.folder / path)
        self._unsynced.discard(self.folder / path)

    def sync(self) -> None:
        if self._unsynced:
            self._disk.sync(self._unsynced)
            self._unsynced.clear()


def _holds(path: Path, payload: Payload) -> bool:
    try:
        return sha256(read_file(path, payload.size)) == payload.digest
    except OSError:
        return False  # missing or unreadable: it is written again


def _new_files(folder: Path, cursor: FolderCursor) -> Iterator[tuple[str, int, Hashable]]:
    """Yield name, size and stamp of the files that a cursor has not accepted."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in islice(entries, MAX_FOLDER_OBJECTS):
            if entry.name in cursor:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield entry.name, status.st_size, (status.st_size, status.st_mtime_ns)
