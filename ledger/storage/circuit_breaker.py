"""Which of several places is left alone for a while: one that holds up whoever asks it.

A place whose host drips, or falls silent, costs its whole time-out for each blob and each look at
the mail. With several places nobody need wait for that again and again.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE_SECONDS = 5.0
LEAST_BYTES_PER_SECOND = 65_536
"""Who gives fewer, beyond the first seconds, is slow, whether it gives all in the end or not."""

TIMES_AS_LONG = 3
"""So much longer than it has held somebody a place is left alone: a quarter of the time is lost."""


class CircuitBreaker:
    """How long each of several places is left alone; safe to share between threads.

    Args:
        places: how many there are.
        clock: seconds that only go forward.
    """

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._until = [-math.inf] * places
        self._clock = clock

    def now(self) -> float:
        """Return when something begins."""
        return self._clock()

    def order(self) -> list[tuple[int, bool]]:
        """Return in which order the places are asked, and of each whether it rests.

        Those that rest come last, for where no other will do. If all of them were slow, the fault
        may have been one's own, and none rests.
        """
        now = self._clock()
        rests = [until > now for until in self._until]
        found = [(number, it and not all(rests)) for number, it in enumerate(rests)]
        return sorted(found, key=lambda place: place[1])

    def answered(self, number: int, begun: float, size: int = 0) -> None:
        """Note how long a place took, whatever came of it.

        Args:
            number: which place.
            begun: when it was asked.
            size: bytes that it gave or took.
        """
        now = self._clock()
        is_slow = now - begun > GRACE_SECONDS + size / LEAST_BYTES_PER_SECOND
        self._until[number] = now + TIMES_AS_LONG * (now - begun) if is_slow else -math.inf
