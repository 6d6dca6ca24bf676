"""The writer of a chain file: its exclusive lock, and the bound on its write-ahead log.

The lock is on a side file, as locking the SQLite file itself would interfere with SQLite's locks.
The operating system releases it when the process ends, so a stale lock file has no effect.

SQLite moves the write-ahead log into the file by itself, except for what a reader's view needs: an
audit that runs for an hour lets the log grow by an hour of blocks.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ledger.chain.ports import ChainLockedError
from ledger.io.folder_lock import HeldError, take_lock
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.embedded.file.chain_store import ChainStore


class WriterLock:
    """The acquired lock; released by `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, chain: Path) -> Self:
        """Return the lock of a chain file without waiting.

        The lock file is `<chain>.lock`, next to the file that a link leads to.
        """
        whole = chain.resolve()
        path = whole.with_name(f"{whole.name}.lock")
        try:
            return cls(take_lock(path))
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        except HeldError as error:
            raise ChainLockedError(f"{chain}: {error} writes to this chain") from error

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


MOST_WAL_BYTES = 64 * 2**20
"""Size of the log at which its readers are named."""

_READ_LOCKS = range(123, 128)  # the bytes of `-shm` that SQLite's readers lock
_log = logging.getLogger(__name__)


class WriteAheadLog:
    """The write-ahead log of a chain that is open for writing."""

    def __init__(self, store: ChainStore, max_bytes: int = MOST_WAL_BYTES) -> None:
        self._store = store
        self._most_bytes = max_bytes
        self._has_warned = False

    def empty(self) -> None:
        """Make the log's content durable, and empty it unless a reader needs it."""
        if self._store.wal_bytes:
            self._store.checkpoint()

    def bound(self) -> None:
        """Checkpoint a log that is too long; warn once about what prevents it.

        No error is raised: the blocks in the log are durable.
        """
        if self._store.wal_bytes <= self._most_bytes:
            return
        try:
            hindrance = (
                None if self._store.checkpoint() else _blocked_by(readers_of(self._store.path))
            )
        except ChainError as error:
            hindrance = str(error)
        if hindrance is not None and not self._has_warned:
            size = self._store.wal_bytes >> 20
            _log.warning("%s-wal has grown to %d MiB: %s", self._store.path, size, hindrance)
        self._has_warned = hindrance is not None


def readers_of(chain: Path) -> list[int]:
    """Return the ids of other processes that read a chain now, as far as the system shows them."""
    try:
        inode = Path(f"{os.path.realpath(chain)}-shm").stat().st_ino
        locks = Path("/proc/locks").read_text("ascii")
    except (OSError, UnicodeError):
        return []
    readers = {_reader(line.split(), inode) for line in locks.splitlines()}
    return sorted(readers - {0, os.getpid()})


def _reader(fields: list[str], inode: int) -> int:
    """Return the process id of a line such as `3: POSIX ADVISORY READ 1234 fd:01:5678 123 127`.

    It is 0 for another lock, and for a process that is not visible here.
    """
    if len(fields) != 8 or fields[1] != "POSIX" or not fields[5].endswith(f":{inode}"):
        return 0
    process, first, last = fields[4], fields[6], fields[7]
    if not (process.isdigit() and first.isdigit() and last.isdigit()):
        return 0
    locked = range(int(first), int(last) + 1)
    return int(process) if any(byte in locked for byte in _READ_LOCKS) else 0


def _blocked_by(processes: list[int]) -> str:
    names = ", ".join(f"process {process}" for process in processes) or "in this process"
    return f"a reader holds an old view of the chain ({names}); it shrinks when the reader ends"
