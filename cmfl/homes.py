"""Homes of runs: the one that is named, or a temporary one that ends with this process."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from cmfl.access.target import Target


def home_at(path: str | Path | None) -> Path:
    """Return the folder of a home; None for a new temporary one.

    A temporary home is removed when this process ends; `Run.save` copies it before.

    Raises:
        ConfigurationError: the path is no folder.
    """
    if path is None:
        return _temporary()
    folder = Path(path)
    # Not Path.exists, which fails for a name that is too long.
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigurationError(f"home {folder}: is there already, and is no folder")
    return folder


def copy_home(target: Target, path: str | Path) -> Target:
    """Return the target of a copy of a home, made in a new folder.

    Raises:
        ConfigurationError: the folder is there already, or cannot be made.
    """
    folder = Path(path)
    if folder.exists():
        raise ConfigurationError(f"{folder}: is there already; name a folder to make")
    try:
        shutil.copytree(target.home, folder)
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror or error}") from error
    return replace(target, home=folder)


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cmfl-"))
    atexit.register(_remove, folder, os.getpid())
    return folder / "home"


def _remove(folder: Path, process: int) -> None:
    """Remove a temporary home, but not from a child that was forked of its process."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
