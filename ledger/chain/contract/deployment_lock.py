"""One process deploys a run at a time: each of two would create a contract of its own."""

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
    """Hold a run's folder, which is made if need be, against all others that would deploy it.

    The system lets go of it when the process ends, however it does.

    Args:
        paths: of the run.
        disk: that it is on.

    Yields:
        Nothing; whoever else comes is refused.

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
