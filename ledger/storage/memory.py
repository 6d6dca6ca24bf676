"""Objects in this process, for tests and short simulations."""

from __future__ import annotations

import errno
from collections import defaultdict
from typing import TYPE_CHECKING

from ledger.storage.objects import verified

if TYPE_CHECKING:
    from ledger.protocol.payload import Payload
    from ledger.storage.objects import FolderCursor


class MemoryObjects:
    """Objects by folder and name, in the order in which they were put."""

    is_shared = False

    def __init__(self) -> None:
        self._folders: defaultdict[str, dict[str, bytes]] = defaultdict(dict)

    def get(self, path: str, limit: int) -> bytes:
        """Return an object, verified against its name."""
        folder, _, name = path.rpartition("/")
        if name not in self._folders[folder]:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", path)
        return verified(path, self._folders[folder][name], limit)

    def has(self, path: str) -> bool:
        """Return whether there is an object."""
        folder, _, name = path.rpartition("/")
        return name in self._folders[folder]

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:  # noqa: ARG002
        """Store a copy of an object; return False if it was there."""
        folder, _, name = path.rpartition("/")
        data = bytes(payload.data)
        is_new = self._folders[folder].get(name) != data
        self._folders[folder][name] = data
        return is_new

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        """Give a cursor the objects of a folder that are new to it."""
        for name, data in self._folders[folder].items():
            if cursor.wants(name, len(data), stamp=None):
                cursor.deliver(name, data, stamp=None)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        folder, _, name = path.rpartition("/")
        self._folders[folder].pop(name, None)

    def sync(self) -> None:
        """Do nothing: memory is not durable."""

    def folders(self) -> list[str]:
        """Return the folders that objects were put into or looked for in."""
        return list(self._folders)

    def names(self) -> list[str]:
        """Return the names of all objects."""
        return [name for objects in self._folders.values() for name in objects]

    def drop(self, folder: str) -> None:
        """Delete all objects of a folder."""
        self._folders.pop(folder, None)
