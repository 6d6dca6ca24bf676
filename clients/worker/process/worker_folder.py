"""The folder of one worker: its lock, its journal, its own updates, and what it tells of itself."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.io.home import JOURNAL, WRITING
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """Where a worker keeps what only it has.

    Attributes:
        path: the folder; it need not exist.
    """

    path: Path

    @property
    def lock(self) -> Path:
        """What the running worker holds."""
        return self.path / "worker.lock"

    @property
    def journal(self) -> Path:
        """What its keys have signed."""
        return self.path / JOURNAL

    @property
    def payloads(self) -> Path:
        """What its clients have trained and perhaps not published yet."""
        return self.path / "payloads"

    @property
    def acted_on(self) -> Path:
        """The final blocks that it has acted on."""
        return self.path / "acted-on.json"

    @property
    def status(self) -> Path:
        """What it says of itself."""
        return self.path / "status.json"

    @property
    def leave(self) -> Path:
        """Where this is, the worker ends after its round."""
        return self.path / "leave"

    def make(self) -> None:
        """Make the folder, for its owner alone, if it is not there.

        Raises:
            ConfigurationError: something else is there under its name.
            OSError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigurationError(
                f"--folder {self.path}: it, or what it would lie in, is no folder; a worker keeps "
                f"its journal in one of its own"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder alone; the system gives it back however the process ends.

        Raises:
            ConfigurationError: another worker holds it, and its process is named where known; or
                it is no folder.
            OSError: the folder cannot be made or written.
        """
        self.make()
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _process_in(descriptor)
            os.close(descriptor)
            who = "another process" if holder is None else f"process {holder}"
            raise ConfigurationError(
                f"{self.path}: {who} runs a worker on this folder, and one journal is for one"
            ) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            # It was asked of a worker that was killed before it could: this one is another.
            self.leave.unlink(missing_ok=True)
            self._remove_unfinished()
            yield
        finally:
            os.close(descriptor)

    def _remove_unfinished(self) -> None:
        """Remove what killed workers were writing: an update each time, on some machines."""
        for folder in (self.path, self.payloads):
            for unfinished in folder.glob(f"{WRITING}*"):
                unfinished.unlink(missing_ok=True)

    def is_held(self) -> bool:
        """Say whether a worker runs on it now."""
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
        """Return the process of the worker that runs on it; None if none does, or nobody can tell.

        What is in the status may be another's: a worker writes one only when it has begun.
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
    """Return the process that a lock names."""
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None
