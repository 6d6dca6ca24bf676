"""The folder of one worker: lock, journal, updates and status."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.io.folder_lock import HeldError, process_in, take_lock
from ledger.io.home import JOURNAL, WRITING
from ledger.protocol.errors import ConfigurationError


class WorkerFolder:
    """Files that belong to one worker alone; the folder need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "worker.lock"
        self.journal = path / JOURNAL
        self.payloads = path / "payloads"  # updates, which may not be published yet
        self.acted_on = path / "acted-on.json"  # the final blocks that it acted on
        self.status = path / "status.json"
        self.leave = path / "leave"  # asks the worker to end after its round

    def make(self) -> None:
        """Create the folder, readable for its owner alone, unless it exists."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigurationError(
                f"--folder {self.path}: it or one of its parents is no folder; a worker keeps its "
                f"journal in a separate one"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock; the system releases it however the process ends."""
        self.make()
        try:
            descriptor = take_lock(self.lock, 0o600)
        except HeldError as error:
            raise ConfigurationError(
                f"{self.path}: {error} runs a worker on this folder, and one journal is for one"
            ) from error
        try:
            # It was asked of a worker that was killed before it could: this one is another.
            self.leave.unlink(missing_ok=True)
            for place in (self.path, self.payloads):  # of killed workers, as large as an update
                for unfinished in place.glob(f"{WRITING}*"):
                    unfinished.unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Return whether a worker holds the folder now."""
        return self._held()[0]

    def holder(self) -> int | None:
        """Return the process id of the running worker; None if there is none or it is unknown.

        The status file may be of an earlier process: a worker writes it after it has started.
        """
        return self._held()[1]

    def _held(self) -> tuple[bool, int | None]:
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False, None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True, process_in(descriptor)
        finally:
            os.close(descriptor)
        return False, None
