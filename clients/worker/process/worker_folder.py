"""The folder of one worker: lock, journal, updates and status."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.io.home import JOURNAL, WRITING
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """Files that belong to one worker alone.

    Attributes:
        path: the folder; it need not exist.
    """

    path: Path

    @property
    def lock(self) -> Path:
        """The lock file of the running worker."""
        return self.path / "worker.lock"

    @property
    def journal(self) -> Path:
        """The vote journal of its keys."""
        return self.path / JOURNAL

    @property
    def payloads(self) -> Path:
        """Updates of its clients, which may not be published yet."""
        return self.path / "payloads"

    @property
    def acted_on(self) -> Path:
        """The final blocks that it acted on."""
        return self.path / "acted-on.json"

    @property
    def status(self) -> Path:
        """Its status file."""
        return self.path / "status.json"

    @property
    def leave(self) -> Path:
        """A file that asks the worker to end after its round."""
        return self.path / "leave"

    def make(self) -> None:
        """Create the folder, readable for its owner alone, unless it exists.

        Raises:
            ConfigurationError: the path is no folder.
            OSError: it cannot be created.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigurationError(
                f"--folder {self.path}: it or one of its parents is no folder; a worker keeps its "
                f"journal in a separate one"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock; the system releases it however the process ends.

        Raises:
            ConfigurationError: another worker holds it (with its process, if known), or it is no
                folder.
            OSError: the folder cannot be created or written.
        """
        self.make()
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _process_in(descriptor)
            os.close(descriptor)
            owner = "another process" if holder is None else f"process {holder}"
            raise ConfigurationError(
                f"{self.path}: {owner} runs a worker on this folder, and one journal is for one"
            ) from error
        try:
            with suppress(OSError):  # a full disk: only messages name the process
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            # It was asked of a worker that was killed before it could: this one is another.
            self.leave.unlink(missing_ok=True)
            self._remove_unfinished()
            yield
        finally:
            os.close(descriptor)

    def _remove_unfinished(self) -> None:
        """Remove temporary files of killed workers, which may be as large as an update."""
        for folder in (self.path, self.payloads):
            for unfinished in folder.glob(f"{WRITING}*"):
                unfinished.unlink(missing_ok=True)

    def is_held(self) -> bool:
        """Return whether a worker holds the folder now."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> int | None:
        """Return the process id of the running worker; None if there is none or it is unknown.

        The status file may be of an earlier process: a worker writes it after it has started.
        """
        if not self.is_held():
            return None
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return _process_in(descriptor)
        finally:
            os.close(descriptor)


def _process_in(descriptor: int) -> int | None:
    """Return the process id that a lock file names."""
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None
