"""A small disk for each worker, which can be filled; it goes with the process that mounted it."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | (1 << 18)
_MNT_DETACH = 2
FILLER = ".filler"
DISK_BYTES = 24 << 20


def has_own_mounts() -> bool:
    """Let this process and those that it begins have mounts of their own; say whether they do."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(_CLONE_NEWNS) != 0:
        return False
    return bool(libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None) == 0)


def mount_small(folder: Path) -> bool:
    """Put a small file system in a folder's place, and say whether that could be done."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    size = b"size=%d" % DISK_BYTES
    return bool(libc.mount(b"none", bytes(folder), b"tmpfs", 0, size) == 0)


def unmount(folder: Path) -> None:
    """Take a small file system away again, with all that is on it."""
    ctypes.CDLL(None, use_errno=True).umount2(bytes(folder), _MNT_DETACH)


def fill(folder: Path) -> None:
    """Leave no byte free on a folder's disk."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def empty(folder: Path) -> None:
    """Free what was filled."""
    (folder / FILLER).unlink(missing_ok=True)
