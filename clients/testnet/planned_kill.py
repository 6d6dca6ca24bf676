"""A worker that is killed on purpose once in a round, and begun again a moment later."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class KillStep(Enum):
    """What there is to do about a kill."""

    NOTHING = auto()
    """Its time has not come, or it is over: the worker is minded like any other."""
    KILL = auto()
    WAIT = auto()
    """The worker is down because it was killed."""
    BEGIN = auto()


@dataclass
class PlannedKill:
    """When a worker is killed and begun again; who looks seldom is only later with both.

    Attributes:
        at: when it is killed, in seconds.
        down_seconds: how long it stays down.
        is_over: whether it has been begun again.
    """

    at: float
    down_seconds: float
    is_over: bool = False
    _killed_at: float | None = None

    def turn(self, now: float, *, is_up: bool) -> KillStep:
        """Return what to do now; it is taken for done.

        Args:
            now: in seconds.
            is_up: whether the worker is running: one that has ended by itself is begun first.
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
