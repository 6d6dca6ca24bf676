"""Startup of a worker: it waits for node and blobs, and reports what it waits for."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from clients.worker.process.worker_status import FORMAT, StatusFile, WorkerState
from ledger.chain.ports import NotServedError
from ledger.io.retry import Backoff
from ledger.protocol.errors import BlobMissingError, BlobUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.worker.process.worker_folder import WorkerFolder

T = TypeVar("T")

_log = logging.getLogger(__name__)

BACKOFF = Backoff(0.25, longest_seconds=8)
STARTING = "starting"
"""Name of a failure that keeps a worker from starting."""

_STEP_SECONDS = 0.25


class Startup:
    """Waits for node and blobs, which may be late.

    There is no round to finish yet, so that `cmfl leave` ends the worker at once.

    Args:
        folder: of the worker, locked by this process.
        wait: waits for a number of seconds; returns whether the worker is to end at once.
        wall: Unix seconds now.
    """

    def __init__(
        self, folder: WorkerFolder, wait: Callable[[float], bool], wall: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._wait = wait
        self._wall = wall
        self._file = StatusFile(folder.status)
        self._says = ""
        self._times = 0

    def retry_until_ready(self, task: Callable[[], T], backoff: Backoff = BACKOFF) -> T | None:
        """Return a task's result once node and blobs answer; None if the worker is to end."""
        failures = 0
        while True:
            try:
                return task()
            except (NotServedError, BlobMissingError, BlobUnreachableError) as error:
                self._record_failure(str(error))
            failures += 1
            if self._should_end_within(backoff.pause(failures)):
                self._end()
                return None

    def _should_end_within(self, seconds: float) -> bool:
        """Wait; return whether a signal or `cmfl leave` asks the worker to end."""
        waited = 0.0
        while waited < seconds:
            step = min(_STEP_SECONDS, seconds - waited)
            if self._wait(step) or self._folder.leave.exists():
                return True
            waited += step
        return False

    def _record_failure(self, sentence: str) -> None:
        self._times += 1
        if sentence != self._says:
            self._says = sentence
            _log.warning("waits: %s", sentence)
        self._file.write(
            status_before(WorkerState.STARTING, os.getpid(), sentence, self._times), self._wall()
        )

    def _end(self) -> None:
        status = status_before(WorkerState.ENDED, os.getpid(), self._says, self._times)
        self._file.write(status, self._wall())
        self._folder.leave.unlink(missing_ok=True)


def status_before(stand: WorkerState, pid: int, says: str = "", times: int = 0) -> dict[str, Any]:
    """Return the status of a worker that knows no round yet.

    Args:
        stand: starting or ended.
        pid: of its process.
        says: what it waits for; empty for nothing.
        times: failures so far.
    """
    return {
        "format": FORMAT,
        "stand": str(stand),
        "pid": pid,
        "account": None,
        "clients": [],
        "round": None,
        "is_finished": False,
        "roles": {},
        "view": None,
        "head": None,
        "model": None,
        "block": None,
        "final_block": None,
        "last_error": f"{STARTING}: {says}" if says else None,
        "troubles": {STARTING: {"says": says, "times": times}} if says else {},
        "own_measurement": None,
        "counts": {
            "rounds": 0,
            "commitments": 0,
            "votes": 0,
            "views": 0,
            "bytes_put": 0,
            "bytes_got": 0,
            "errors": {STARTING: times} if times else {},
        },
    }
