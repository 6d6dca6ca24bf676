"""Files that a command is told to write, and that must not be those of a home."""

from __future__ import annotations

import os
from pathlib import Path

from cmfl.arguments import naming
from cmfl.commands.console import complain
from ledger.io.folders import is_standard_output, is_written_into, write_named
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError


def refuse_home_file(path: Path, option: str = "--out") -> None:
    """Refuse a path that is, or lies in, what a home keeps: its chain, blobs, runs.

    Raises:
        ConfigurationError: names the path and the home.
    """
    named = path.absolute().parent.resolve() / path.name
    # A link is followed when the file is written.
    for place in dict.fromkeys((named, Path(os.path.realpath(path)))):
        _refuse_place(place, path, option)


def require_writable(path: Path, option: str = "--out", *, as_json: bool = False) -> None:
    """Refuse a result's file that cannot be written, before the work has taken its time.

    Args:
        path: of the file.
        option: that names it, for messages.
        as_json: whether standard output has the command's JSON, and so no file.

    Raises:
        ConfigurationError: names the file and what is wrong with it.
    """
    refuse_home_file(path, option)
    if as_json and is_standard_output(path):
        raise ConfigurationError(
            f"{option} {path} and --json: both print on standard output; give one of them"
        )
    if path.is_dir():
        raise ConfigurationError(f"{option} {path}: is a folder, must be a file")
    if is_written_into(path):
        return
    if not path.parent.is_dir():
        raise ConfigurationError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigurationError(f"{option} {path}: may not be written")


def write_result(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a result's file, which replaces an earlier one; missing folders are made.

    Raises:
        ConfigurationError: it cannot be written, and an earlier one is as it was.
    """
    with naming(f"{option} {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_named(path, data)


def wrote_report(path: Path, data: bytes) -> bool:
    """Write the file of --report; complain, and return False, if that fails."""
    try:
        write_named(path, data)
    except OSError as error:
        complain(f"--report {path}: {error.strerror}; no report was written")
        return False
    return True


def _refuse_place(place: Path, path: Path, option: str) -> None:
    for folder in place.parents:
        home = Home(folder)
        if not (home.chain.is_file() or home.lock.is_file()):
            continue
        kept = (home.chain, home.event_log, home.blobs, home.runs, home.lock)
        first = folder / place.relative_to(folder).parts[0]
        # SQLite keeps a log and shared memory beside a file, under its name.
        if any(first == each or first.name.startswith(f"{each.name}-") for each in kept):
            raise ConfigurationError(
                f"{option} {path}: lies in {first.name} of the home {folder}, which only a run "
                f"may write; name another place"
            )
