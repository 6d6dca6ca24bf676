"""The files of one worker: what is done to them while it runs, or while it is down."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from ledger.io.home import DISK, WRITING
from tests.federation.disturbed import FAULT_FILE


def back_up(folder: Path, target: Path) -> None:
    """Copy a worker's files to a folder, which is replaced; the worker may be running."""
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns(f"{WRITING}*", "*.sqlite*", FILLER)
    shutil.copytree(folder, target, ignore=ignored, copy_function=_copy)
    for path in folder.glob("*.sqlite"):
        # A journal that is copied while it is written to may be no journal.
        copy = sqlite3.connect(target / path.name)
        with closing(sqlite3.connect(path)) as base, closing(copy):
            base.backup(copy)


def restore(folder: Path, backup: Path) -> None:
    """Replace a worker's files by a backup; the worker must not be running."""
    # Not the folder itself, which may be a mount point.
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(backup, folder, dirs_exist_ok=True)


def set_fault(folder: Path, fault: str, round_number: int) -> None:
    DISK.write_whole(folder / FAULT_FILE, f"{round_number} {fault}\n".encode(), durable=False)


def clear_fault(folder: Path) -> None:
    (folder / FAULT_FILE).unlink(missing_ok=True)


def _copy(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # the worker has removed it meanwhile
        shutil.copy2(source, target)


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
    with (folder / FILLER).open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def empty(folder: Path) -> None:
    (folder / FILLER).unlink(missing_ok=True)
