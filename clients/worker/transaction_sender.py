"""A worker's transactions: one batch at a time, beside its votes.

What is not taken up now is asked for again by the next step, as every act is until it is seen to
have arrived; so nothing is queued here, and nothing old is ever sent. Whether something is of use
follows from the chain alone: what has been looked after at one block is not looked after again
before the next, or a worker would ask its node for the same at every step until that is final.
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
    """Has transactions sent."""

    def __init__(self, executor: Executor, failures: FailureTracker) -> None:
        """Take up where they are sent.

        Args:
            executor: of one thread.
            failures: what goes wrong is told to.
        """
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
        """Have something sent, unless something is under way or has just failed.

        Args:
            moment: now.
            what: it is, for the log.
            task: sends it, and says whether that had an effect.
            about: the hash of the chain's newest block, and what is sent: the same is not sent
                again at the same block, unless it has failed. None for what always is.
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
        """Say whether something has been sent, with an effect, since the last time.

        Args:
            moment: now.
        """
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
