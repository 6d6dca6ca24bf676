"""The life of a worker: wait for node and blobs, then step until the run or the worker ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from clients.worker.chain_clock import Moment
from clients.worker.process.worker_folder import WorkerFolder
from clients.worker.process.worker_status import (
    StatusFile,
    WorkerState,
    status_before,
    worker_status,
)
from ledger.chain.ports import NotServedError
from ledger.io.retry import Backoff
from ledger.protocol.errors import BlobMissingError, BlobUnreachableError

if TYPE_CHECKING:
    from clients.worker.process.setup import RunningWorker

T = TypeVar("T")
_log = logging.getLogger(__name__)

BACKOFF = Backoff(0.25, longest_seconds=8)
SHORTEST_PAUSE_SECONDS = 0.01
_STEP_SECONDS = 0.25


class Startup:
    """Waits for node and blobs, which may be late.

    There is no round to finish yet, so that `cmfl leave` ends the worker at once.

    Args:
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


class WorkerLoop:
    """Drives one worker."""

    def __init__(
        self,
        opened: RunningWorker,
        folder: WorkerFolder,
        status: StatusFile,
        account: Callable[[], str],
        poll_seconds: float,
    ) -> None:
        """Prepare to drive a worker in its folder.

        Args:
            account: returns the account that pays now, EIP-55.
            poll_seconds: pause between polls if nothing is due.
        """
        self._worker, self._counts = opened.worker, opened.counts
        self._folder = folder
        self._status = status
        self._account = account
        self._poll_seconds = poll_seconds
        self._leaves_after: int | None = None
        self.stand = WorkerState.RUNNING

    def run(self, moment: Callable[[], Moment], wait: Callable[[float], bool]) -> None:
        """Step until the run is over, no client can act any more, or the worker is to end.

        Args:
            wait: waits for a number of seconds; returns whether to end at once.
        """
        is_told = wait(0)
        while not is_told:
            later = self._worker.step(moment())
            self._counts.look(self._worker)
            if self._is_over():
                break
            self._write(moment())
            pause = self._poll_seconds if later is None else min(later, self._poll_seconds)
            is_told = wait(max(SHORTEST_PAUSE_SECONDS, pause))
        if is_told:
            _log.info("ends on request")
        self.stand = WorkerState.ENDED
        self._write(moment())
        # Also a request made while it ended: the next process has not been asked to leave.
        self._folder.leave.unlink(missing_ok=True)

    def _is_over(self) -> bool:
        worker = self._worker
        if worker.is_finished:
            _log.info("the run is finished")
            return True
        if not worker.can_act:
            _log.warning("every client of this worker is banned: it can do nothing more")
            return True
        return self._has_left()

    def _has_left(self) -> bool:
        """Return whether the round is over after which the worker was asked to end."""
        chain, seats = self._worker.chain, self._worker.seats
        if self._leaves_after is None and self._folder.leave.exists() and chain is not None:
            self._leaves_after = chain.round
            self.stand = WorkerState.LEAVING
            _log.info("leaves after round %d", chain.round, extra={"round": chain.round})
        if self._leaves_after is None or chain is None or seats is None:
            return False
        return chain.round > self._leaves_after or not seats.active

    def _write(self, moment: Moment) -> None:
        status = worker_status(self._worker, self._counts, self.stand, self._account())
        self._status.write(status, moment.wall)
