"""Failures of a worker: logged once, counted, and retried after growing, spread pauses.

A silent node, a full disk, an account without funds: none of them ends a worker, and none keeps it
from what it can still do. Each part of its work is retried on its own, so that many workers do not
come back at the same time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeVar

from clients.worker.chain_clock import Moment
from ledger.io.retry import Backoff
from ledger.protocol.errors import CmflError

T = TypeVar("T")

_log = logging.getLogger(__name__)


class WorkPart(StrEnum):
    """A part of a worker's work that is retried on its own."""

    CHAIN = "chain"
    MODEL = "model"
    TRAINING = "training"
    SENDING = "sending"
    VOTING = "voting"
    MEASURING = "measuring"


# Votes are due in seconds, and funds are not: polling soon costs nothing.
BACKOFF = {
    WorkPart.CHAIN: Backoff(0.25, longest_seconds=4),
    WorkPart.MODEL: Backoff(0.25, longest_seconds=4),
    WorkPart.TRAINING: Backoff(0.25, longest_seconds=15),
    WorkPart.SENDING: Backoff(0.25, longest_seconds=30),
    WorkPart.VOTING: Backoff(0.25, longest_seconds=4),
    WorkPart.MEASURING: Backoff(0.25, longest_seconds=30),
}


@dataclass(frozen=True, slots=True)
class OngoingFailure:
    """A failure without a success since."""

    sentence: str
    times: int
    until: float


@dataclass(slots=True)
class FailureTracker:
    """Failures by part of the work, and when each part is due again.

    Attributes:
        last: the newest sentence; None if nothing has ever failed.
    """

    rng: Random
    ongoing: dict[WorkPart, OngoingFailure] = field(default_factory=dict)
    counts: Counter[WorkPart] = field(default_factory=Counter)
    last: str | None = None

    def is_waiting(self, part: WorkPart, moment: Moment) -> bool:
        """Return whether a part is not due yet."""
        failure = self.ongoing.get(part)
        return failure is not None and moment.steady < failure.until

    def attempt(self, part: WorkPart, moment: Moment, task: Callable[[], T]) -> T | None:
        """Return a task's result; None if it fails or is not due yet."""
        if self.is_waiting(part, moment):
            return None
        try:
            result = task()
        except (CmflError, OSError) as error:
            self.record_failure(part, moment, error)
            return None
        self.record_success(part)
        return result

    def record_failure(self, part: WorkPart, moment: Moment, error: Exception) -> None:
        """Count a failure, log it if it is new, and set the next attempt."""
        sentence = str(error)[:500]
        before = self.ongoing.get(part)
        times = 1 if before is None else before.times + 1
        until = moment.steady + BACKOFF[part].pause(times) * self.rng.uniform(0.5, 1.0)
        self.ongoing[part] = OngoingFailure(sentence, times, until)
        self.counts[part] += 1
        self.last = f"{part}: {sentence}"
        if before is None or before.sentence != sentence:
            _log.warning("%s: %s", part, sentence, extra={"part": str(part)})

    def record_success(self, part: WorkPart) -> None:
        """End a part's failure, if there is one, and log that it works again."""
        failure = self.ongoing.pop(part, None)
        if failure is not None:
            _log.warning(
                "%s: works again after %d failures",
                part,
                failure.times,
                extra={"part": str(part), "failures": failure.times},
            )
