"""The exclusive lock of a chain file's writer.

The lock is on a side file, as locking the SQLite file itself would interfere with SQLite's locks.
The operating system releases it when the process ends, so a stale lock file has no effect.
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
    """The acquired lock; released by `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, chain: Path) -> Self:
        """Return the lock of a chain file without waiting.

        The lock file is `<chain>.lock`, next to the file that a link leads to.

        Raises:
            ChainLockedError: another writer has it; names the process if known.
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
            owner = f"process {holder}" if holder.isdigit() else "another process"
            raise ChainLockedError(f"{chain}: {owner} writes to this chain") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
