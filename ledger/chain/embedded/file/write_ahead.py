"""Keeping a chain's write-ahead log short, or saying who keeps it long.

SQLite moves the log into the file by itself, but never what a reader's view still needs: one
audit that holds its view for an hour lets the log grow by an hour of blocks.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.embedded.file.chain_store import ChainStore

MOST_WAL_BYTES = 64 * 2**20
"""How long the log may become before its readers are named."""

_READ_LOCKS = range(123, 128)  # the bytes of `-shm` that SQLite's readers lock
_log = logging.getLogger(__name__)


class WriteAheadLog:
    """The log of a chain that is open for writing.

    Args:
        store: the chain file.
        most_bytes: how long it may become.
    """

    def __init__(self, store: ChainStore, max_bytes: int = MOST_WAL_BYTES) -> None:
        self._store = store
        self._most_bytes = max_bytes
        self._said = False

    def empty(self) -> None:
        """Make durable what waits in the log, and empty it unless a reader needs it.

        Raises:
            ChainError: the disk refuses.
        """
        if self._store.wal_bytes:
            self._store.checkpoint()

    def bound(self) -> None:
        """Empty the log if it is too long; say once what prevents it.

        The blocks in it are durable, so that nothing here is the sender's business.
        """
        if self._store.wal_bytes <= self._most_bytes:
            return
        try:
            hindrance = None if self._store.checkpoint() else _who(readers_of(self._store.path))
        except ChainError as error:
            hindrance = str(error)
        if hindrance is not None and not self._said:
            size = self._store.wal_bytes >> 20
            _log.warning("%s-wal has grown to %d MiB: %s", self._store.path, size, hindrance)
        self._said = hindrance is not None


def readers_of(chain: Path) -> list[int]:
    """Return which other processes read a chain at this moment, as far as the system tells.

    Args:
        chain: the chain file.
    """
    try:
        inode = Path(f"{os.path.realpath(chain)}-shm").stat().st_ino
        locks = Path("/proc/locks").read_text("ascii")
    except (OSError, UnicodeError):
        return []
    readers = {_reader(line.split(), inode) for line in locks.splitlines()}
    return sorted(readers - {0, os.getpid()})


def _reader(fields: list[str], inode: int) -> int:
    """Return the process of a line such as `3: POSIX ADVISORY READ 1234 fd:01:5678 123 127`.

    It is 0 where the line is of another lock, or of a process that is not to be seen from here.
    """
    if len(fields) != 8 or fields[1] != "POSIX" or not fields[5].endswith(f":{inode}"):
        return 0
    process, first, last = fields[4], fields[6], fields[7]
    if not (process.isdigit() and first.isdigit() and last.isdigit()):
        return 0
    held = range(int(first), int(last) + 1)
    return int(process) if any(byte in held for byte in _READ_LOCKS) else 0


def _who(processes: list[int]) -> str:
    who = ", ".join(f"process {process}" for process in processes) or "in this process"
    return f"a reader holds an old view of the chain ({who}); it shrinks when the reader ends"
