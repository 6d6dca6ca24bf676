"""How often a server of blobs is asked that does not answer: a few times, with longer waits."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from ledger.io.http import HttpFailureError, ResponseTooLargeError
from ledger.io.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SILENCE_SECONDS = 10.0
"""How long a store that takes blobs and envelopes may say nothing: it has nothing to compute."""

PATIENT = RetryPolicy((0.2, 1.0), most_seconds=SILENCE_SECONDS)
"""Who has let us wait for as long as that is not asked again at once; others wait for us, too."""

AT_ONCE = RetryPolicy(())
"""Asks once."""

PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""What may be otherwise when it is asked again; a full disk (507) stays full."""


def asked(patience: RetryPolicy, ask: Callable[[], T], status_of: Callable[[T], int]) -> T:
    """Return the first answer that is worth having, or what the last attempt comes to.

    Args:
        patience: how often.
        ask: one attempt.
        status_of: HTTP's status of an answer.

    Raises:
        ResponseTooLargeError: an answer is too large; the next would be, too.
        HttpFailureError: the last attempt has no whole answer either.
    """
    return patience.ask(ask, _passes, lambda answer: status_of(answer) in PASSING)


def _passes(error: Exception) -> bool:
    return isinstance(error, HttpFailureError) and not isinstance(error, ResponseTooLargeError)
