"""The exclusive lock of a chain file's one writer.

The lock lives on a side file, because locking the SQLite file itself would disturb SQLite's own
locks. The operating system gives it back when the process ends, however it ends, so a stale lock
file never blocks anybody.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

from ledger.chain.ports import ChainLockedError
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from pathlib import Path


class WriterLock:
    """The held lock; released by `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, chain: Path) -> Self:
        """Return the lock for writing to a chain file, at once or not at all.

        Args:
            chain: the SQLite file; the lock file is `<chain>.lock` beside it,
                wherever a link to it lies.

        Returns:
            The held lock.

        Raises:
            ChainLockedError: another writer holds it; names the process where known.
            ChainError: the lock file cannot be made.
        """
        whole = chain.resolve()
        path = whole.with_name(f"{whole.name}.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise ChainLockedError(f"{chain}: {who} writes to this chain") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; doing so twice does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
