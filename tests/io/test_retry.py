"""Retries: growing pauses, no attempt after the deadline, and only of what may pass."""

from __future__ import annotations

import math

import pytest

from ledger.io.retry import Backoff, RetryPolicy


class Clock:
    """Time that passes only during pauses and attempts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.attempted_at: list[float] = []

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def attempt(self, seconds: float) -> None:
        self.attempted_at.append(self.now)
        self.now += seconds

    def fail(self, seconds: float) -> str:
        self.attempt(seconds)
        raise ValueError("not now")

    def policy(self, attempts: int | None = 3, deadline: float = math.inf) -> RetryPolicy:
        return RetryPolicy(Backoff(1.0, 3), attempts, deadline, self.sleep, self.time)


def test_pauses_grow_up_to_a_bound() -> None:
    backoff = Backoff(0.5, 2, longest_seconds=3)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 4, 10_000)] == [0.5, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("seconds", "deadline", "attempted_at"),
    [(0.0, 60.0, [0, 1, 4]), (2.0, 60.0, [0, 3, 8]), (2.0, 4.0, [0, 3]), (5.0, 4.0, [0])],
)
def test_no_attempt_begins_after_the_deadline(
    seconds: float, deadline: float, attempted_at: list[float]
) -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="not now"):
        clock.policy(deadline=deadline).call(lambda: clock.fail(seconds), lambda _: True)
    assert clock.attempted_at == attempted_at


def test_an_error_may_ask_for_a_longer_pause() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="not now"):
        clock.policy().call(lambda: clock.fail(0), lambda _: True, least_pause=lambda _: 2.0)
    assert clock.attempted_at == [0, 2, 5]


def test_transient_results_are_retried_and_the_last_one_returned() -> None:
    clock, results = Clock(), [503, 503, 503, 200]
    assert (
        clock.policy().call(
            lambda: results.pop(0),
            lambda _: False,
            is_transient_result=lambda status: status == 503,
        )
        == 503
    )
    assert results == [200]
    assert clock.now == 4


def test_polling_ends_with_a_result_or_at_the_deadline() -> None:
    clock, results = Clock(), [None, None, "here"]
    assert clock.policy(None).poll(lambda: results.pop(0)) == "here"
    assert clock.now == 4

    def nothing() -> str | None:
        clock.attempt(0)
        return None

    assert clock.policy(None, deadline=10).poll(nothing) is None
    assert clock.attempted_at == [4, 5, 8, 17]
