"""How often and how long something is asked again that has failed for a moment."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Asks again, a few times and not for long.

    Attributes:
        waits: seconds before the second attempt, the third and so on.
        most_seconds: no attempt begins later than so many seconds after the first.
        sleep: waits so many seconds.
        clock: seconds that only go forward.
    """

    waits: tuple[float, ...]
    most_seconds: float = math.inf
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def ask(
        self,
        once: Callable[[], T],
        passes: Callable[[Exception], bool],
        is_passing: Callable[[T], bool] = lambda _: False,
        least_wait: Callable[[Exception], float] = lambda _: 0.0,
    ) -> T:
        """Return the first answer that is worth having, or what the last attempt comes to.

        Args:
            once: one attempt; it may be carried out twice.
            passes: says whether a failure may be over when it is asked again.
            is_passing: says the same of an answer.
            least_wait: seconds that a failure asks to be left alone; where that is longer than may
                be waited, the failure stands.

        Raises:
            Exception: what `once` raises, where it does not pass or the last attempt raises it.
        """
        end = self.clock() + self.most_seconds
        for wait in self.waits:
            try:
                answer = once()
            except Exception as error:
                pause = max(wait, least_wait(error)) if passes(error) else math.inf
                # Who let us wait for all of the time has had it.
                if self.clock() + pause >= end:
                    raise
            else:
                pause = wait
                if not is_passing(answer) or self.clock() + pause >= end:
                    return answer
            self.sleep(pause)
        return once()
