"""The lock that lets one process at a time deploy a run: two would create two contracts."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.io.home import DISK
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.io.home import Disk, RunPaths


@contextmanager
def deployment_lock(paths: RunPaths, disk: Disk = DISK) -> Iterator[None]:
    """Hold the exclusive lock of a run's folder, which is made if it does not exist.

    The operating system releases the lock when the process ends.

    Raises:
        ChainError: another process is deploying the run.
        OSError: the folder cannot be made or opened.
    """
    for folder in (paths.path.parent.parent, paths.path.parent, paths.path):
        if not folder.is_dir():
            disk.make_folder(folder)
    descriptor = os.open(paths.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ChainError(
            f"run {paths.name!r} is being deployed by another process: wait until it has ended"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    try:
        yield
    finally:
        os.close(descriptor)
