"""How often a server is asked that does not answer: a few times, with longer and longer waits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from ledger.bounded_http import HttpFailureError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""What may be otherwise when it is asked again; a full disk (507) stays full."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Asks again.

    Attributes:
        waits: seconds before the second attempt, the third and so on.
        sleep: waits so many seconds.
    """

    waits: tuple[float, ...] = (0.2, 1.0)
    sleep: Callable[[float], None] = time.sleep

    def asked(self, ask: Callable[[], T], status_of: Callable[[T], int]) -> T:
        """Return the first answer that is worth having, or what the last attempt comes to.

        Args:
            ask: one attempt.
            status_of: HTTP's status of an answer.

        Raises:
            TooLargeError: an answer is too large; the next would be, too.
            HttpFailureError: the last attempt has no whole answer either.
        """
        for wait in self.waits:
            try:
                answer = ask()
            except TooLargeError:
                raise
            except HttpFailureError:
                self.sleep(wait)
                continue
            if status_of(answer) not in PASSING:
                return answer
            self.sleep(wait)
        return ask()


AT_ONCE = Patience(())
"""Asks once."""
