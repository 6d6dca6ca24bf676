"""One process for a folder: a second one is refused, and a killed one leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def sole_process(folder: Path, lock: str, option: str = "--folder") -> Iterator[None]:
    """Hold a folder, which is made if need be, for this process.

    Args:
        folder: whose parent is there.
        lock: name of the lock file in it.
        option: that names the folder, for messages.

    Raises:
        ConfigurationError: another process holds the folder, or it cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(f"{option} {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigurationError(f"{option} {folder}: another process serves it") from error
    try:
        yield
    finally:
        os.close(descriptor)
