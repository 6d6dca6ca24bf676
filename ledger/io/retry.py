"""Retries: growing pauses between attempts, under one overall deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow with each failure in a row."""

    first_seconds: float
    factor: float = 2.0  # by which each pause is longer than the one before
    longest_seconds: float = math.inf

    def pause(self, failures: int) -> float:
        # Beyond that every bound is reached, and a float would overflow.
        return min(self.longest_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A bound on attempts, in number and in time, for operations that fail for a moment."""

    backoff: Backoff
    attempts: int | None = None  # at most; None for as many as the deadline allows
    deadline_seconds: float = math.inf  # no attempt begins later than this after the first one
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward

    def call(
        self,
        attempt: Callable[[], T],
        is_transient: Callable[[Exception], bool],
        *,
        is_transient_result: Callable[[T], bool] = lambda _: False,
        least_pause: Callable[[Exception], float] = lambda _: 0.0,
    ) -> T:
        """Return the first lasting result, or the last attempt's; `least_pause` is in seconds."""
        end, failures = self.clock() + self.deadline_seconds, 0
        while True:
            failures += 1
            pause = math.inf if failures == self.attempts else self.backoff.pause(failures)
            try:
                result = attempt()
            except Exception as error:
                pause = max(pause, least_pause(error)) if is_transient(error) else math.inf
                # A caller who waited for the whole time is not kept waiting again.
                if math.isinf(pause) or self.clock() + pause >= end:
                    raise
            else:
                is_last = math.isinf(pause) or self.clock() + pause >= end
                if is_last or not is_transient_result(result):
                    return result
            self.sleep(pause)

    def poll(self, probe: Callable[[], T | None]) -> T | None:
        end, failures = self.clock() + self.deadline_seconds, 0
        while (result := probe()) is None:
            failures += 1
            if self.clock() > end or failures == self.attempts:
                return None
            self.sleep(self.backoff.pause(failures))
        return result
