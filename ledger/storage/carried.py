"""Objects that a carrier brings and fetches: two folders of one owner, and a list of wishes.

The worker puts its objects into `outgoing`, and they stay there until the carrier says that it has
them. What the carrier brings lies in `brought`. A blob in neither leaves a file in `wanted`;
the reader comes back for it, as for anything that has not arrived yet.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.io.home import DISK, Disk
from ledger.protocol.payload import Payload
from ledger.storage.folder import FolderObjects
from ledger.storage.object_paths import is_blob, mail_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.storage.objects import FolderCursor

KEPT_ROUNDS = 2
"""Newest rounds whose mail stays where it was brought."""


class CarriedObjects:
    """The store of one owner; workers of others cannot reach it."""

    is_shared = True

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        """Use a folder, which is made on the first write.

        Args:
            folder: of one owner; its worker and the carrier's node both write to it.
            disk: writes.
        """
        self._outgoing = FolderObjects(folder / "outgoing", disk=disk)
        self._brought = FolderObjects(folder / "brought", disk=disk)
        self._wanted = folder / "wanted"
        self._disk = disk

    def get(self, path: str, limit: int) -> bytes:
        """Return an object, verified; a blob that is missing is wanted of the carrier."""
        for store in (self._brought, self._outgoing):
            with suppress(FileNotFoundError):
                return store.get(path, limit)
        if is_blob(path):
            self._disk.write_whole(self._wanted / path.rpartition("/")[2], b"", durable=False)
        raise FileNotFoundError(2, "the carrier has not brought it", path)

    def has(self, path: str) -> bool:
        """Return whether there is an object."""
        return self._brought.has(path) or self._outgoing.has(path)

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        """Store an object for the carrier; return False if it is there."""
        if self._brought.has(path):
            return False
        return self._outgoing.put(path, payload, durable=durable)

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        """Give a cursor the objects of a folder that are new to it."""
        self._outgoing.scan(folder, cursor)
        self._brought.scan(folder, cursor)

    def delete(self, path: str) -> None:
        """Delete an object here."""
        self._outgoing.delete(path)
        self._brought.delete(path)

    def sync(self) -> None:
        """Make all that was put survive a power cut."""
        self._outgoing.sync()
        self._brought.sync()

    def wanted(self) -> list[str]:
        """Return the paths of the blobs that a reader misses, by name."""
        if not self._wanted.is_dir():
            return []
        names = sorted(file.name for file in self._wanted.iterdir())
        return [path for name in names if is_blob(path := f"{name[:2]}/{name}")]

    def outgoing(self) -> list[str]:
        """Return the paths of what the carrier does not have yet, mail last.

        Mail speaks of blobs, and whoever has it looks for them.
        """
        paths = _paths(self._outgoing.folder)
        return sorted(paths, key=lambda path: (mail_round(path) is not None, path))

    def fetch(self, path: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes that the carrier does not have yet."""
        return self._outgoing.get(path, limit)

    def bring(self, path: str, data: bytes) -> bool:
        """Take an object from a carrier; return whether it is of use.

        It is not if its bytes are not what the path says, or if it is a blob that nobody wants.
        """
        payload = Payload.of(data)
        name = path.rpartition("/")[2]
        wish = self._wanted / name
        if payload.digest.hex() != name or (is_blob(path) and not wish.exists()):
            return False
        self._brought.put(path, payload, durable=False)
        self._disk.remove(wish)
        return True

    def take_over(self, paths: Sequence[str]) -> None:
        """Move what the carrier says it has from what goes out to what was brought."""
        for path in paths:
            source, target = self._outgoing.folder / path, self._brought.folder / path
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                self._disk.rename(source, target)

    def forget(self, newest: int) -> None:
        """Remove all blobs that were brought, and the mail of rounds long before the newest.

        A reader who misses a blob wants it again.
        """
        for path in _paths(self._brought.folder):
            number = mail_round(path)
            if number is None or number <= newest - KEPT_ROUNDS:
                self._brought.delete(path)

    def newest_round(self) -> int:
        """Return the newest round of which mail was brought; 0 if there is none."""
        return max((mail_round(path) or 0 for path in _paths(self._brought.folder)), default=0)


def _paths(folder: Path) -> list[str]:
    """Return the paths of the objects in a folder; unfinished files are none."""
    paths = []
    for at, _, names in os.walk(folder):
        parent = Path(at).relative_to(folder).as_posix()
        paths += [f"{parent}/{name}" for name in names]
    return [path for path in paths if _is_object(path) and (folder / path).is_file()]


def _is_object(path: str) -> bool:
    return is_blob(path) or mail_round(path) is not None
