"""A real file system that is small enough to fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLING = "filling"
NO_MOUNT = "only root that may mount a tmpfs can fill a disk"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of so many bytes on a new folder; skip the test where that is not allowed."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if (
        os.geteuid()
        or subprocess.run(["mount", *options], capture_output=True, check=False).returncode
    ):
        pytest.skip(NO_MOUNT)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk with a file until so many bytes are free; return the file."""
    path = disk / FILLING
    with path.open("ab") as file:
        free = os.statvfs(disk)
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
    return path
