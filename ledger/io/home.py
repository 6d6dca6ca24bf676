"""Files: the layout of a home, durable and named writing, bounded reading, and locks of folders.

This module alone knows the names `chain.sqlite`, `blobs/`, `runs/<name>/` and their contents, and
it alone writes files (except SQLite databases). A reader sees a complete file or none, even if the
writer is killed. A durable file survives a power cut: its bytes are synced, then all its folders.

A device, a pipe or an open descriptor (`/dev/stdout`) that a user names is written into, and never
replaced. A regular file is replaced as a whole, so that a full disk keeps the old bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from itertools import chain, count, pairwise, takewhile
from pathlib import Path
from typing import IO

from ledger.protocol.errors import ConfigurationError

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
WRITING = ".writing-"  # prefix of the name of an unfinished file
MANIFEST = "deployment.json"
JOURNAL = "votes.sqlite"

_SYNCING_THREADS = 8
_MOST_NAMED = 4_096  # durable folders that are remembered; a forgotten one is synced again
_Inode = tuple[int, int]  # device and number


class Disk:
    """Operations on a file system; tests replace it by one that loses power."""

    def __init__(self) -> None:
        # Folders whose own names are durable. Path and inode alone may be of another folder.
        self._named: dict[_Inode, Path] = {}

    def write_whole(self, path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
        """Write a file by renaming a temporary one; a durable one survives a power cut."""
        with _naming(path):
            self.make_folders(path.parent)
            temporary = self.create(path.parent, data)
            try:
                if durable:
                    self.sync_files([temporary])
                self.rename(temporary, path)
            except BaseException:
                self.remove(temporary)
                raise
            if durable:
                self._sync_names([path])

    def sync(self, paths: Collection[Path]) -> None:
        """Make files that were written survive a power cut under their names."""
        self.sync_files(paths)
        self._sync_names(paths)

    def make_folders(self, folder: Path) -> None:
        missing = takewhile(lambda each: not each.exists(), chain((folder,), folder.parents))
        for each in reversed(list(missing)):
            self.make_folder(each)

    def make_folder(self, folder: Path) -> None:
        with _naming(folder):
            folder.mkdir(exist_ok=True)
            self._named.pop(_inode_of(folder), None)

    def create(self, folder: Path, data: bytes | memoryview) -> Path:
        """Write a new file with a unique name that begins with `WRITING`."""
        # Not `tempfile`, whose files are for their owner alone: others may audit a home.
        path = folder / f"{WRITING}{secrets.token_hex(8)}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def append(self, path: Path, data: bytes) -> None:
        with _naming(path), path.open("ab") as file:
            file.write(data)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def remove(self, path: Path) -> None:
        with _naming(path):
            path.unlink(missing_ok=True)

    def sync_files(self, paths: Collection[Path]) -> None:
        _in_parallel(_sync_path, paths)

    def sync_folders(self, folders: Collection[Path]) -> None:
        _in_parallel(self.sync_folder, folders)

    def sync_folder(self, folder: Path) -> None:
        try:
            _sync_path(folder, os.O_DIRECTORY)
        except OSError as error:
            # Some network file systems keep names at once, and cannot be asked to.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise

    def _sync_names(self, paths: Collection[Path]) -> None:
        folders = {path.parent for path in paths}
        self.sync_folders(sorted(folders))
        # Not only folders made here: the creator of the others may have been killed.
        unnamed = [each for folder in folders for each in self._unnamed(folder)]
        for parent in sorted({parent for _, _, parent in unnamed} - folders):
            with suppress(PermissionError):  # then no name in it was created here
                self.sync_folder(parent)
        if len(self._named) + len(unnamed) > _MOST_NAMED:
            self._named.clear()  # each round adds folders of mail
        self._named |= {inode: folder for inode, folder, _ in unnamed}

    def _unnamed(self, folder: Path) -> Iterator[tuple[_Inode, Path, Path]]:
        """Yield a folder and those above it whose names may be lost, each with its parent."""
        if self._named.get(_inode_of(folder)) == folder:
            return
        for each, parent in pairwise((folder, *folder.resolve().parents)):
            inode = _inode_of(each)
            if self._named.get(inode) == each or _inode_of(parent)[0] != inode[0]:
                return  # the names above are durable, or of another file system
            yield inode, each, parent


def _inode_of(folder: Path) -> _Inode:
    status = folder.stat()
    return status.st_dev, status.st_ino


DISK = Disk()


@dataclass(frozen=True, slots=True)
class _Below:
    """A path below its owner's."""

    name: str

    def __get__(self, owner: RunPaths | Home, _: object = None) -> Path:
        return owner.path / self.name


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Paths of a run's files that are neither chain nor blobs."""

    path: Path

    configuration = _Below("config.toml")  # all settings
    metrics = _Below("metrics.jsonl")  # one line for each round
    manifest = _Below(MANIFEST)  # the deployment: chain, contract and run document
    intent = _Below("deployment.intent.json")  # the deployment that is being sent
    lock = _Below("run.lock")  # of the process that deploys or plays the run
    journal = _Below(JOURNAL)  # votes of the run's keys
    model = _Below("model.safetensors")  # the last one
    environments = _Below("environments.jsonl")  # each in which a simulation trained, by round

    @property
    def name(self) -> str:
        return self.path.name

    def left_by_play(self) -> Path | None:
        """Return a file that only a process which plays the run writes; None if there is none."""
        written = (self.metrics, self.journal, self.model, self.environments)
        return next((path for path in written if path.exists()), None)

    def has_rows(self) -> bool:
        """Return whether rows were ever written, even if all of them are set aside now."""
        return self.metrics.exists() or any(self.path.glob("metrics.before-rollback-*.jsonl"))

    def metrics_before_rollback(self) -> Path:
        paths = (self.path / f"metrics.before-rollback-{n}.jsonl" for n in count(1))
        return next(path for path in paths if not path.exists())


@dataclass(frozen=True, slots=True)
class Home:
    """A folder with a chain, blobs and runs; it need not exist."""

    path: Path

    chain = _Below("chain.sqlite")  # the embedded chain
    blobs = _Below("blobs")  # the content-addressed store
    runs = _Below("runs")  # one folder for each run
    event_log = _Below("event_log.sqlite")  # a cache: verified events of contracts on nodes
    lock = _Below("home.lock")  # shared by writers

    def run(self, name: str) -> RunPaths:
        if not RUN_NAME.fullmatch(name):
            raise ConfigurationError(
                f"run name {name!r}: must be up to 64 letters, digits, dots, dashes, underscores"
            )
        return RunPaths(self.runs / name)

    def journals(self) -> list[Path]:
        patterns = (JOURNAL, f"runs/*/{JOURNAL}", f"workers/*/{JOURNAL}")
        return [path for pattern in patterns for path in sorted(self.path.glob(pattern))]

    def deployed(self) -> list[RunPaths]:
        return [RunPaths(path.parent) for path in sorted(self.runs.glob(f"*/{MANIFEST}"))]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold a shared writer's lock; the first writer removes unfinished files of killed ones."""
        self.path.mkdir(parents=True, exist_ok=True)
        with _naming(self.lock):
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for folder in ("", "runs/*/", "blobs/*/"):
                    for path in self.path.glob(f"{folder}{WRITING}*"):
                        path.unlink(missing_ok=True)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)


def read_file(path: Path, limit: int) -> bytes:
    """Read at most `limit` bytes of a file, and one more if it is longer."""
    with _naming(path), open_file(path) as file:
        # Python allocates all that it is asked for, so ask for no more than there is.
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, limit) + 1)
        if size < len(data) <= limit:  # it has grown meanwhile
            data += file.read(limit + 1 - len(data))
        return data


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading; a pipe or a device is refused, and does not block."""
    with _naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            reason = "it is not a file, but a folder, a pipe or a device"
            raise OSError(errno.EINVAL, reason, str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the bytes of a file that a user named."""
    with naming(f"{path} cannot be read"):
        data = read_file(path, limit)
    if len(data) > limit:
        raise ConfigurationError(f"{path} is over {limit} bytes")
    return data


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file that a user named."""
    data = read_bounded(path, limit)
    try:
        return data.decode("utf-8-sig")  # editors may put a byte-order mark before the text
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


@contextmanager
def naming(
    subject: object, errors: type[Exception] | tuple[type[Exception], ...] = OSError
) -> Iterator[None]:
    """Name a file, an option or a setting in an OSError, or in the given errors, and refuse it."""
    try:
        yield
    except errors as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{subject}: {reason}") from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _in_parallel(sync: Callable[[Path], None], paths: Collection[Path]) -> None:
    """Sync paths side by side: the file system writes its own journal once for many of them."""

    def sync_share(start: int) -> None:
        for path in ordered[start::_SYNCING_THREADS]:
            sync(path)

    ordered = list(paths)
    if len(ordered) <= 1:
        sync_share(0)
        return
    shares = [_threads().submit(sync_share, start) for start in range(_SYNCING_THREADS)]
    wait(shares)
    for share in shares:
        share.result()


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that sync; new ones for each call took a third of its CPU time."""
    return ThreadPoolExecutor(_SYNCING_THREADS, thread_name_prefix="syncing")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of the threads


def _sync_path(path: Path, kind: int = 0) -> None:
    with _naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_MOVED: dict[int, int] = {}  # the descriptor that a standard stream has now, by the usual one


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
    mode = None
    try:
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode
        if (descriptor := _descriptor(path)) is not None:
            opening = os.dup(descriptor)
        elif mode is not None and not stat.S_ISREG(mode):
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
    """Return whether a path is a device or a pipe, so that it is not replaced as a regular file."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file())


def is_standard_output(path: Path) -> bool:
    """Return whether a path is the standard output of this process."""
    return _descriptor(path) == _MOVED.get(1, 1)


@contextmanager
def _replacing(target: Path, mode: int | None) -> Iterator[IO[bytes]]:
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


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor of this process that a path names, as /dev/stdout does."""
    own = {Path(f"/proc/{os.getpid()}/fd"), Path("/dev/fd")}
    for _ in range(40):  # as many links as the kernel follows
        folder = Path(os.path.realpath(path.parent))
        if folder in own:
            number = int(path.name) if path.name.isdecimal() else None
            return None if number is None else _MOVED.get(number, number)
        if not (folder / path.name).is_symlink():
            return None
        path = folder / (folder / path.name).readlink()
    return None


_MOST_BYTES = 200


class HeldError(ConfigurationError):
    """Another process holds a lock; the message is its id and command, as far as known."""


def take_lock(path: Path, mode: int = 0o644) -> int:
    """Return the descriptor of a lock file that names this process, locked until it is closed."""
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
        held = os.fdopen(take_lock(folder / lock))
    except OSError as error:
        raise ConfigurationError(f"{option} {folder}: {error.strerror}") from error
    except HeldError as error:
        raise ConfigurationError(f"{option} {folder}: {error} serves it") from error
    with held:
        yield


@contextmanager
def run_lock(paths: RunPaths, disk: Disk = DISK) -> Iterator[None]:
    """Hold a run's folder, which is made if need be, to deploy or to play the run."""
    for folder in (paths.path.parent.parent, paths.path.parent, paths.path):
        if not folder.is_dir():
            disk.make_folder(folder)
    try:
        held = os.fdopen(take_lock(paths.lock))
    except HeldError as error:
        raise ConfigurationError(
            f"run {paths.name!r}: {error} plays or deploys it; wait for that process, or end it, "
            f"and repeat this command"
        ) from error
    with held:
        yield


def _command() -> str:
    """Return this process's program and subcommand; options and arguments may be secret."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    name = program.parent.name if program.name == "__main__.py" else program.name
    if name != "cmfl":
        return name if name not in {"", "-c"} else "python"
    return " ".join([name, *takewhile(lambda word: not word.startswith("-"), sys.argv[1:2])])


def _holder(descriptor: int) -> str:
    process = process_in(descriptor)
    if process is None:
        return "another process"
    text = os.pread(descriptor, _MOST_BYTES, 0).decode("utf-8", "replace")
    command = text.partition("\n")[0].partition(" ")[2]
    return f"process {process}" + (f" ({command})" if command and command.isprintable() else "")
