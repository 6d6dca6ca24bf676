"""The main loop of a worker: step and wait until the run is over or the worker is to end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from clients.worker.process.worker_status import WorkerState, worker_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.worker.chain_clock import Moment
    from clients.worker.process.setup import RunningWorker
    from clients.worker.process.worker_folder import WorkerFolder
    from clients.worker.process.worker_status import StatusFile

_log = logging.getLogger(__name__)

SHORTEST_PAUSE_SECONDS = 0.01


class WorkerLoop:
    """Drives one worker.

    Attributes:
        stand: the worker's state.
    """

    def __init__(
        self,
        opened: RunningWorker,
        folder: WorkerFolder,
        status: StatusFile,
        account: Callable[[], str],
        poll_seconds: float,
    ) -> None:
        """Prepare to drive a worker.

        Args:
            opened: the worker.
            folder: its folder.
            status: its status file.
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
            moment: returns the time.
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
