"""A home: where everything of it lies, and how a file comes there whole or not at all.

This file alone knows the names `chain.sqlite`, `blobs/`, `runs/<name>/` and what is in them, and
it alone writes files (SQLite, which has its own ways, writes chain and vote journals). A reader
sees a whole file or none, whoever is killed meanwhile; what has been made durable is there after a
power cut too, and under its name: a file's bytes are synced, then its folder, then the folders
above it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from io import BufferedReader

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
WRITING = ".writing-"
"""What the name of a file begins with until it is whole."""

MANIFEST = "deployment.json"
JOURNAL = "votes.sqlite"

_SYNCING_THREADS = 8
_MOST_NAMED = 4_096
"""Folders that are remembered; of one that is forgotten it is asked once more."""


class Disk:
    """What is asked of a file system; a test puts one that loses power in its place.

    `write_whole` and `sync` are made of the others, each of which does one thing to the disk.
    """

    def __init__(self) -> None:
        self._named: set[Path] = set()  # folders whose own names are durable

    def write_whole(self, path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
        """Write beside the target and rename, so that no reader ever sees half a file.

        Args:
            path: of the file; its folder is made.
            data: what it shall hold.
            durable: whether it survives a power cut once this returns; else `sync` sees to that.

        Raises:
            OSError: it cannot be written, and `filename` is the path; what was there still is.
        """
        with _naming(path):
            for folder in _missing(path.parent):
                self.make_folder(folder)
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
        """Return once these files survive a power cut, under their names.

        Args:
            paths: files that were written.

        Raises:
            OSError: one of them cannot be made durable.
        """
        self.sync_files(paths)
        self._sync_names(paths)

    def make_folder(self, folder: Path) -> None:
        """Make one folder, if another process has not made it meanwhile."""
        with _naming(folder):
            folder.mkdir(exist_ok=True)
        self._named.discard(folder.resolve())

    def create(self, folder: Path, data: bytes | memoryview) -> Path:
        """Write a new file under a name of its own that begins with `WRITING`.

        Args:
            folder: where.
            data: what it shall hold.

        Raises:
            OSError: it cannot be written; nothing is left.
        """
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
        """Write at the end of a file, which is made if need be.

        Args:
            path: of the file.
            data: what follows.

        Raises:
            OSError: it cannot be written, and `filename` is the path.
        """
        with _naming(path), path.open("ab") as file:
            file.write(data)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name, which may be another's before."""
        path.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with _naming(path):
            path.unlink(missing_ok=True)

    def sync_files(self, paths: Collection[Path]) -> None:
        """Return once the bytes of these files are durable.

        Raises:
            OSError: those of one of them are not, and `filename` is its path.
        """
        if len(paths) == 1:
            _sync_each(paths)
            return
        # Side by side, so that the file system writes its own journal once for many of them.
        shares = [list(paths)[start::_SYNCING_THREADS] for start in range(_SYNCING_THREADS)]
        with ThreadPoolExecutor(_SYNCING_THREADS) as threads:
            list(threads.map(_sync_each, shares))

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in a folder are durable.

        Raises:
            OSError: they are not, and `filename` is the path of the folder.
        """
        with _naming(folder):
            try:
                _sync_descriptor(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            except OSError as error:
                # Some file systems on a network keep names at once and have no way to ask for it.
                if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                    raise

    def _sync_names(self, paths: Collection[Path]) -> None:
        folders = {path.parent.resolve() for path in paths}
        for folder in sorted(folders):
            self.sync_folder(folder)
        # Not only those that were made here: whoever made the others may have been killed since.
        unnamed = {above for folder in folders - self._named for above in _within_device(folder)}
        unnamed -= self._named
        for parent in sorted({folder.parent for folder in unnamed} - folders):
            with contextlib.suppress(PermissionError):  # then nobody here has made a name in it
                self.sync_folder(parent)
        if len(self._named) + len(unnamed) > _MOST_NAMED:
            self._named.clear()  # mail has folders of its own in each round
        self._named |= unnamed


DISK = Disk()


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Where a run keeps what is not on the chain and not a blob.

    Attributes:
        path: `runs/<name>`.
    """

    path: Path

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def configuration(self) -> Path:
        """The run's whole configuration, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One JSON line per round."""
        return self.path / "metrics.jsonl"

    @property
    def manifest(self) -> Path:
        """What was deployed where."""
        return self.path / MANIFEST

    @property
    def intent(self) -> Path:
        """What is being deployed where, until the manifest is there."""
        return self.path / "deployment.intent.json"

    @property
    def journal(self) -> Path:
        """What the keys of this run have signed."""
        return self.path / JOURNAL

    @property
    def model(self) -> Path:
        """The last model."""
        return self.path / "model.safetensors"

    def left_by_play(self) -> Path | None:
        """Return a file that only a run with a contract writes, None if there is none."""
        written = (self.metrics, self.journal, self.model)
        return next((path for path in written if path.exists()), None)

    def has_rows(self) -> bool:
        """Say whether rows were ever written, of which those set aside are left at least."""
        return self.metrics.exists() or any(self.path.glob("metrics.before-rollback-*.jsonl"))

    def metrics_before_rollback(self) -> Path:
        """Return where metrics are kept that the chain does not bear out: a name not yet used."""
        number = 1
        while (path := self.path / f"metrics.before-rollback-{number}.jsonl").exists():
            number += 1
        return path


@dataclass(frozen=True, slots=True)
class Home:
    """A folder with a chain, blobs and runs.

    Attributes:
        path: the folder; it need not exist.
    """

    path: Path

    @property
    def chain(self) -> Path:
        """The embedded chain's file."""
        return self.path / "chain.sqlite"

    @property
    def blobs(self) -> Path:
        """The content-addressed store."""
        return self.path / "blobs"

    @property
    def runs(self) -> Path:
        """The folder with one folder for each run."""
        return self.path / "runs"

    @property
    def verifications(self) -> Path:
        """Reports of audits that a service has run."""
        return self.path / "verifications"

    @property
    def index(self) -> Path:
        """The index of all runs, where there is one; chain and blobs have all that it holds."""
        return self.path / "index.sqlite"

    @property
    def lock(self) -> Path:
        """What writers hold a share of."""
        return self.path / "home.lock"

    def run(self, name: str) -> RunPaths:
        """Return where a run's files are; they need not exist.

        Args:
            name: of the run.

        Raises:
            ConfigurationError: the name is no plain file name.
        """
        if not RUN_NAME.fullmatch(name):
            raise ConfigurationError(
                f"run name {name!r}: letters, digits, dot, dash and underscore, at most 64"
            )
        return RunPaths(self.runs / name)

    def journals(self) -> list[Path]:
        """Return the vote journals of all runs, by name."""
        return sorted(self.runs.glob(f"*/{JOURNAL}"))

    def deployed(self) -> list[RunPaths]:
        """Return the runs that have a manifest, by name."""
        return [RunPaths(path.parent) for path in sorted(self.runs.glob(f"*/{MANIFEST}"))]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold a writer's share of the home; whoever comes to it alone first cleans up.

        Writers share the home: each part of it has rules of its own for several at a time. Who
        only reads does not ask.

        Yields:
            Nothing; files that killed writers had begun are gone.

        Raises:
            OSError: the home cannot be made or written, and `filename` names the path.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with _naming(self.lock):
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._remove_unfinished()
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def _remove_unfinished(self) -> None:
        for pattern in (f"{WRITING}*", f"runs/*/{WRITING}*", f"blobs/*/{WRITING}*"):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)


def read_file(path: Path, limit: int) -> bytes:
    """Return what is in a file, at once: a pipe or a device under its name holds nobody up.

    Args:
        path: of the file.
        limit: so many bytes at most, and one more if there are more.

    Raises:
        OSError: there is no file, or it cannot be read; `filename` is the path.
    """
    with _naming(path), open_file(path) as file:
        # No more is asked for than there is: Python sets aside all that it is asked for.
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, limit) + 1)
        if size < len(data) <= limit:  # it has grown meanwhile
            data += file.read(limit + 1 - len(data))
        return data


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading, at once: a pipe or a device under its name holds nobody up.

    Args:
        path: of the file.

    Yields:
        The file.

    Raises:
        OSError: there is no file, or it cannot be opened; `filename` is the path.
    """
    with _naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            said = "it is no file, but a folder, a pipe or a device"
            raise OSError(errno.EINVAL, said, str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file that a user named.

    Args:
        path: of the file.
        limit: so many bytes at most.

    Raises:
        ConfigurationError: it cannot be read, is over the limit, or is not UTF-8.
    """
    try:
        data = read_file(path, limit)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise ConfigurationError(f"{path} is over {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Have every error of the disk name the file that it keeps from being written or read.

    Raises:
        OSError: the same, and `filename` is the path.
    """
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _missing(folder: Path) -> list[Path]:
    """Return the folders that have to be made, the outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    return missing[::-1]


def _within_device(folder: Path) -> list[Path]:
    """Return a folder and those above it, as far as their names are on the same file system."""
    device = folder.stat().st_dev
    return [
        path
        for path in (folder, *folder.parents)
        if path.parent != path and path.parent.stat().st_dev == device
    ]


def _sync_each(paths: Collection[Path]) -> None:
    for path in paths:
        with _naming(path):
            _sync_descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _sync_descriptor(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def index_place(home: Home, named: str | None) -> Path | str:
    """Return where the index of a home is: a file, or the URL of a server's database.

    Args:
        home: the home.
        named: by whoever asks; None or nothing for the home's own.
    """
    if not named:
        return home.index
    return named if "://" in named else Path(named)
