"""A planned kill of a worker, once in a round, with a restart a moment later."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class KillStep(Enum):
    """Next step of a planned kill."""

    NOTHING = auto()
    """Its time has not come, or it is over: the worker is minded like any other."""
    KILL = auto()
    WAIT = auto()
    """The worker is down because it was killed."""
    BEGIN = auto()


@dataclass
class PlannedKill:
    """Times at which a worker is killed and restarted; late polls only delay them.

    Attributes:
        at: time of the kill, in seconds.
        down_seconds: until the restart.
        is_over: whether it has been restarted.
    """

    at: float
    down_seconds: float
    is_over: bool = False
    _killed_at: float | None = None

    def turn(self, now: float, *, is_up: bool) -> KillStep:
        """Return the step that is due, and assume that it is done.

        Args:
            now: in seconds.
            is_up: whether the worker runs; one that has ended by itself is restarted first.
        """
        if self.is_over:
            return KillStep.NOTHING
        if self._killed_at is None:
            if now < self.at or not is_up:
                return KillStep.NOTHING
            self._killed_at = now
            return KillStep.KILL
        if now < self._killed_at + self.down_seconds:
            return KillStep.WAIT
        self.is_over = True
        return KillStep.BEGIN
