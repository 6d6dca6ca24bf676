"""The files of one worker: what is done to them while it runs, or while it is down."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from ledger.io.home import DISK, WRITING
from tests.federation.disks import FILLER
from tests.federation.disturbed import FAULT_FILE

if TYPE_CHECKING:
    from pathlib import Path


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
