"""A server that fails is asked again a few times, with longer waits, and then not."""

from __future__ import annotations

import pytest

from ledger.io.http import HttpFailureError, ResponseTooLargeError
from ledger.io.retry import RetryPolicy
from ledger.storage.patience import AT_ONCE, PASSING, asked


class Server:
    """Answers with what it is told to, and raises what is an error."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = list(answers)

    def ask(self) -> int:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def left(self) -> int:
        return len(self._answers)


def told(server: Server) -> tuple[int, list[float]]:
    waits: list[float] = []
    patience = RetryPolicy((0.5, 2.0), sleep=waits.append)
    return asked(patience, server.ask, int), waits


def test_what_passes_is_asked_for_again() -> None:
    assert told(Server(200)) == (200, [])
    assert told(Server(503, 200)) == (200, [0.5])
    assert told(Server(HttpFailureError("away"), 408, 201)) == (201, [0.5, 2.0])
    for status in (400, 403, 404, 413, 429, 507):
        assert status not in PASSING
        assert told(Server(status, 200)) == (status, [])


def test_it_is_not_asked_for_ever() -> None:
    server = Server(503, 503, 503, 200)
    assert told(server) == (503, [0.5, 2.0])
    assert server.left == 1
    with pytest.raises(HttpFailureError, match="third"):
        told(Server(*(HttpFailureError(name) for name in ("first", "second", "third"))))
    server = Server(503, 200)
    assert asked(AT_ONCE, server.ask, int) == 503


def test_what_is_too_large_stays_so() -> None:
    server = Server(ResponseTooLargeError("over the bound"), 200)
    with pytest.raises(ResponseTooLargeError):
        told(server)
    assert server.left == 1
