"""A worker that has begun and is not open yet: what it waits for, and what it says meanwhile."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from clients.worker.process.worker_status import FORMAT, StatusFile, WorkerState
from ledger.chain.ports import NotServedError
from ledger.protocol.errors import BlobMissingError, BlobUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.worker.process.worker_folder import WorkerFolder

T = TypeVar("T")

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0
STARTING = "starting"
"""What a trouble is called that keeps a worker from beginning."""


class Startup:
    """Waits for what a worker needs to begin with: a node and blobs, which may be late.

    Until then there is no round to finish, so that whoever asks it to leave need not wait for one.
    """

    def __init__(
        self, folder: WorkerFolder, wait: Callable[[float], bool], wall: Callable[[], float]
    ) -> None:
        """Take up what there is before there is a worker.

        Args:
            folder: of the worker, which is held.
            wait: waits for so many seconds, and says whether the worker is to end at once.
            wall: Unix seconds now.
        """
        self._folder = folder
        self._wait = wait
        self._wall = wall
        self._file = StatusFile(folder.status)
        self._says = ""
        self._times = 0

    def retry_until_ready(
        self, task: Callable[[], T], longest: float = LONGEST_PAUSE_SECONDS
    ) -> T | None:
        """Return what a task comes to, once what it needs is there; None if the worker is to end.

        Args:
            task: needs a node and blobs, which may still be starting.
            longest: pause between two tries, in seconds.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return task()
            except (NotServedError, BlobMissingError, BlobUnreachableError) as error:
                self._take_note(str(error))
            if self._is_told_within(pause):
                self._end()
                return None
            pause = min(longest, 2 * pause)

    def _is_told_within(self, seconds: float) -> bool:
        """Wait, and say whether the worker is to end, by a signal or because it is to leave."""
        until = 0.0
        while until < seconds:
            step = min(FIRST_PAUSE_SECONDS, seconds - until)
            if self._wait(step) or self._folder.leave.exists():
                return True
            until += step
        return False

    def _take_note(self, sentence: str) -> None:
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
    """Return what a worker says of itself before it knows of any round.

    Args:
        stand: what it is at.
        pid: of its process.
        says: what it waits for; nothing if it has not met anything.
        times: how often it has looked for that.
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
