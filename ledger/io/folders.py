"""Files that a user names for a result, and locks of folders.

A device, a pipe and an open descriptor (`/dev/stdout`) are written into, and never replaced. Links
are followed. A regular file is replaced as a whole: a reader sees the old bytes or the new ones,
and a full disk keeps the old ones.

A lock is a file that its process holds with flock. The file names the process and its command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO

from ledger.io.home import DISK, WRITING, Disk, RunPaths
from ledger.protocol.errors import ConfigurationError

_MOST_LINKS = 40


_MOVED: dict[int, int] = {}
"""The descriptor that a standard stream has now, by the usual one."""


def move_standard_output(descriptor: int) -> None:
    """Take another descriptor for standard output, as `/dev/stdout` names it."""
    _MOVED[1] = descriptor


def write_named(path: Path, data: bytes) -> None:
    """Write a file that a user named; see `writing_named`."""
    with writing_named(path) as file:
        file.write(data)


@contextmanager
def writing_named(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that a user named, for its whole new content."""
    try:
        if (descriptor := _descriptor(path)) is not None:
            opening = os.dup(descriptor)
        elif (mode := _mode(path)) is not None and not stat.S_ISREG(mode):
            opening = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        else:
            with _replacing(Path(os.path.realpath(path)), mode) as file:
                yield file
            return
        with os.fdopen(opening, "wb") as file:
            yield file
    except OSError as error:
        is_unfinished = Path(str(error.filename)).name.startswith(WRITING)
        if error.filename not in {None, str(path)} and not is_unfinished:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_written_into(path: Path) -> bool:
    """Return whether a path is no regular file that would be replaced: a device, a pipe."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file())


def is_standard_output(path: Path) -> bool:
    """Return whether a path is the standard output of this process."""
    return _descriptor(path) == _MOVED.get(1, 1)


@contextmanager
def _replacing(target: Path, mode: int | None) -> Iterator[IO[bytes]]:
    """Write beside a regular file, and rename once all is on the disk."""
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside = target.with_name(f"{WRITING}{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        DISK.rename(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    DISK.sync_folder(target.parent)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor of this process that a path names, as /dev/stdout does."""
    own = {Path(f"/proc/{os.getpid()}/fd"), Path("/dev/fd")}
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        if folder in own:
            number = int(path.name) if path.name.isdecimal() else None
            return None if number is None else _MOVED.get(number, number)
        if not (folder / path.name).is_symlink():
            return None
        path = folder / (folder / path.name).readlink()
    return None


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
