"""What goes wrong round a worker: said once, counted, and tried again with patience.

A node that does not answer, a full disk, an account without funds: none of them ends a worker, and
none keeps it from what it can still do. Each part of its work is tried again on its own, after
pauses that grow and that chance spreads, so that many workers do not all come back at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from clients.worker.chain_clock import Moment

T = TypeVar("T")

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.25


class WorkPart(StrEnum):
    """A part of a worker's work that is tried again on its own."""

    CHAIN = "chain"
    MODEL = "model"
    TRAINING = "training"
    SENDING = "sending"
    VOTING = "voting"
    MEASURING = "measuring"


LONGEST_PAUSE_SECONDS = {
    WorkPart.CHAIN: 4.0,
    WorkPart.MODEL: 4.0,
    WorkPart.TRAINING: 15.0,
    WorkPart.SENDING: 30.0,
    WorkPart.VOTING: 4.0,
    WorkPart.MEASURING: 30.0,
}
"""Votes are due in seconds, and funds are not: what is looked at again soon costs nothing."""


@dataclass(slots=True)
class OngoingFailure:
    """Something that has gone wrong and has not gone well since.

    Attributes:
        sentence: what was said of it last.
        times: how often in a row.
        until: when it is tried again, by the steady clock.
    """

    sentence: str
    times: int
    until: float


@dataclass(slots=True)
class FailureTracker:
    """What a worker has to be patient with.

    Attributes:
        chance: spreads the pauses.
        present: by part.
        counts: failures so far, by part.
        last: the newest sentence, None if nothing has ever gone wrong.
    """

    chance: Random
    present: dict[WorkPart, OngoingFailure] = field(default_factory=dict)
    counts: Counter[WorkPart] = field(default_factory=Counter)
    last: str | None = None

    def is_waiting(self, part: WorkPart, moment: Moment) -> bool:
        """Say whether a part is not to be tried again yet.

        Args:
            part: of the work.
            moment: now.
        """
        trouble = self.present.get(part)
        return trouble is not None and moment.steady < trouble.until

    def attempt(self, part: WorkPart, moment: Moment, task: Callable[[], T]) -> T | None:
        """Return what a task comes to, None if it fails or is not to be tried again yet.

        Args:
            part: of the work.
            moment: now.
            task: what is to be done.
        """
        if self.is_waiting(part, moment):
            return None
        try:
            done = task()
        except (CmflError, OSError) as error:
            self.failed(part, moment, error)
            return None
        self.went_well(part)
        return done

    def failed(self, part: WorkPart, moment: Moment, error: Exception) -> None:
        """Take note of a failure.

        Args:
            part: of the work.
            moment: now.
            error: what went wrong.
        """
        sentence = str(error)[:500]
        known = self.present.get(part)
        times = 1 if known is None else known.times + 1
        most = LONGEST_PAUSE_SECONDS[part]
        pause = min(most, FIRST_PAUSE_SECONDS * 2 ** min(times - 1, 16))
        until = moment.steady + pause * self.chance.uniform(0.5, 1.0)
        self.present[part] = OngoingFailure(sentence, times, until)
        self.counts[part] += 1
        self.last = f"{part}: {sentence}"
        if known is None or known.sentence != sentence:
            _log.warning("%s: %s", part, sentence, extra={"part": str(part)})

    def went_well(self, part: WorkPart) -> None:
        """Take note that a part works.

        Args:
            part: of the work.
        """
        trouble = self.present.pop(part, None)
        if trouble is not None:
            _log.warning(
                "%s: works again after %d failures",
                part,
                trouble.times,
                extra={"part": str(part), "failures": trouble.times},
            )
