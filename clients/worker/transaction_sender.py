"""Background sending of a worker's transactions: one batch at a time.

A batch that is not accepted now is offered again by the next step, until its effect is on the
chain; so nothing is queued, and nothing old is ever sent. Whether a transaction is useful follows
from the chain alone: the same batch is not sent twice at one block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from clients.worker.failures import WorkPart
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from clients.worker.chain_clock import Moment
    from clients.worker.failures import FailureTracker

_log = logging.getLogger(__name__)


class TransactionSender:
    """Sends batches of transactions in a background thread."""

    def __init__(self, executor: Executor, failures: FailureTracker) -> None:
        """Use an executor of one thread, and report failures to the tracker."""
        self._executor = executor
        self._failures = failures
        self._running: tuple[str, Future[bool]] | None = None
        self._block: bytes | None = None
        self._tried: list[object] = []

    def offer(
        self,
        moment: Moment,
        what: str,
        task: Callable[[], bool],
        about: tuple[bytes, object] | None = None,
    ) -> None:
        """Send a batch, unless another one is being sent or has just failed.

        Args:
            moment: now.
            what: the batch is, for the log.
            task: sends it; returns whether that had an effect.
            about: hash of the chain's newest block, and the batch: the same is sent once at a
                block, unless it fails. None to send always.
        """
        if self._running is not None or self._failures.is_waiting(WorkPart.SENDING, moment):
            return
        if about is not None:
            block, sent = about
            if block != self._block:
                self._block, self._tried = block, []
            if sent in self._tried:
                return
            self._tried.append(sent)
        self._running = what, self._executor.submit(task)

    def collect(self, moment: Moment) -> bool:
        """Return whether a batch was sent with an effect since the last call."""
        if self._running is None or not self._running[1].done():
            return False
        (what, running), self._running = self._running, None
        try:
            has_effect = running.result()
        except (CmflError, OSError) as error:
            self._tried = []
            self._failures.record_failure(WorkPart.SENDING, moment, error)
            return False
        self._failures.record_success(WorkPart.SENDING)
        if has_effect:
            _log.info("the chain took %s", what, extra={"sent": what})
        return has_effect
