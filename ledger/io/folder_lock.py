"""Locks between processes: a second process is refused, and a killed one leaves no lock behind.

A lock is a file that its process holds with flock. The file names the process and its command.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from ledger.io.home import DISK, Disk, RunPaths
from ledger.protocol.errors import ConfigurationError

_MOST_BYTES = 200
_PROGRAM = "cmfl"


class HeldError(ConfigurationError):
    """Another process holds a lock; the message is its id and command, as far as known."""


def take_lock(path: Path, mode: int = 0o644) -> int:
    """Return the descriptor of a lock file, locked until it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a full disk: only messages name the process
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {_command()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise HeldError(holder) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def process_in(descriptor: int) -> int | None:
    """Return the process id that a lock file names."""
    first = os.pread(descriptor, _MOST_BYTES, 0).split(maxsplit=1)[:1]
    return int(first[0]) if first and first[0].isdigit() else None


@contextmanager
def sole_process(folder: Path, lock: str, option: str = "--folder") -> Iterator[None]:
    """Hold a folder, which is made if need be, for this process."""
    try:
        folder.mkdir(exist_ok=True)
        descriptor = take_lock(folder / lock)
    except OSError as error:
        raise ConfigurationError(f"{option} {folder}: {error.strerror}") from error
    except HeldError as error:
        raise ConfigurationError(f"{option} {folder}: {error} serves it") from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def run_lock(paths: RunPaths, disk: Disk = DISK) -> Iterator[None]:
    """Hold a run's folder, which is made if need be, to deploy or to play the run."""
    for folder in (paths.path.parent.parent, paths.path.parent, paths.path):
        if not folder.is_dir():
            disk.make_folder(folder)
    try:
        descriptor = take_lock(paths.lock)
    except HeldError as error:
        raise ConfigurationError(
            f"run {paths.name!r}: {error} plays or deploys it; wait for that process, or end it, "
            f"and repeat this command"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _command() -> str:
    """Return this process's program and subcommand; options and arguments may be secret."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    name = program.parent.name if program.name == "__main__.py" else program.name
    if name != _PROGRAM:
        return name if name not in {"", "-c"} else "python"
    return " ".join([name, *takewhile(lambda word: not word.startswith("-"), sys.argv[1:2])])


def _holder(descriptor: int) -> str:
    process = process_in(descriptor)
    if process is None:
        return "another process"
    text = os.pread(descriptor, _MOST_BYTES, 0).decode("utf-8", "replace")
    command = text.partition("\n")[0].partition(" ")[2]
    return (
        f"process {process} ({command})"
        if command.isprintable() and command
        else (f"process {process}")
    )
