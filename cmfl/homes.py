"""Homes of runs: the one that is named, or a temporary one that ends with this process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from cmfl.arguments import PATH, require
from cmfl.where import Target
from ledger.protocol.errors import ConfigurationError

_PREFIX = "cmfl-"
_LOCK = "in-use"


@contextmanager
def opened_home(path: str | Path | None) -> Iterator[Path]:
    """Yield the folder of a home; None for a new temporary one.

    A temporary home is removed when the context fails, and else when this process ends; `Run.save`
    copies it before.
    """
    if path is None:
        folder = _new_folder()
        try:
            yield folder / "home"
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    folder = Path(path)
    # Not Path.exists, which fails for a name that is too long.
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigurationError(f"home {folder}: is there already, and is no folder")
    yield folder


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed with the context."""
    folder = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_home(target: Target, path: str | Path) -> Target:
    """Return the target of a copy of a home, made in a new folder."""
    require(PATH, home=path)
    folder = Path(path)
    if os.path.lexists(folder):
        raise ConfigurationError(f"{folder}: is there already; name a folder to make")
    try:
        shutil.copytree(target.home, folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{folder}: {reason}") from error
    return replace(target, home=folder)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_folder_of_process(os.getpid(), tempfile.gettempdir())))


@cache
def _folder_of_process(process: int, place: str) -> Path:  # noqa: ARG001 - a key of the cache
    """Make the folder of a process's temporary folders, and remove those of ended processes.

    A pool ends its workers by a signal, which leaves them no time to clear up: the next process
    does it.
    """
    for folder in Path(place).glob(f"{_PREFIX}*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    new = folder / f"{_LOCK}.new"
    # Held until the process ends, however it ends.
    fcntl.flock(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600), fcntl.LOCK_EX)
    new.rename(folder / _LOCK)  # never to be seen unlocked
    # Not atexit, which the processes of a pool do not heed. Not of a child that was forked later.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
    return folder


def _is_abandoned(folder: Path) -> bool:
    """Return whether a folder is this user's, and of a process that has ended."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
