"""Asking a node again that has failed for a moment: a few times, with growing pauses, not for long.

Only for what may be asked twice: reads, and transactions that are signed already, whose nonce keeps
them from being taken twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledger.chain.rpc.http_transport import MomentaryFailureError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PAUSE_GROWTH = 3.0


class Patience:
    """How often and how long a node that fails is asked again.

    Args:
        retries: how often after the first time.
        pause_seconds: before the first of them; each later pause is three times as long.
        most_seconds: no retry begins later than so many seconds after the first try.
        sleep: how to wait, in seconds.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        retries: int,
        pause_seconds: float,
        most_seconds: float,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._retries = retries
        self._pause_seconds = pause_seconds
        self._most_seconds = most_seconds
        self._sleep = sleep
        self._clock = clock

    def ask(self, once: Callable[[], T]) -> T:
        """Return the answer, asked for again while only a moment's failure keeps it away.

        Args:
            once: asks once.

        Raises:
            MomentaryFailureError: it failed each time.
        """
        end, pause = self._clock() + self._most_seconds, self._pause_seconds
        for _ in range(self._retries):
            try:
                return once()
            except MomentaryFailureError:
                # Who let us wait for all of the time has had it.
                if self._clock() + pause >= end:
                    raise
            self._sleep(pause)
            pause *= _PAUSE_GROWTH
        return once()
