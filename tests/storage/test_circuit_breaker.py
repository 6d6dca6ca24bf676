"""A place that holds up whoever asks it is left alone for a while, and no longer."""

from __future__ import annotations

from ledger.storage.circuit_breaker import (
    GRACE_SECONDS,
    LEAST_BYTES_PER_SECOND,
    TIMES_AS_LONG,
    CircuitBreaker,
)


def test_who_is_slow_rests_for_some_times_as_long() -> None:
    now = 100.0
    resting = CircuitBreaker(2, lambda: now)
    assert resting.order() == [(0, False), (1, False)]
    begun = resting.now()
    now += 10
    resting.answered(0, begun)
    assert resting.order() == [(1, False), (0, True)]
    now += TIMES_AS_LONG * 10 - 1
    assert resting.order() == [(1, False), (0, True)]
    now += 1
    assert resting.order() == [(0, False), (1, False)]


def test_who_gives_much_may_take_its_time() -> None:
    now = GRACE_SECONDS
    resting = CircuitBreaker(2, lambda: now)
    resting.answered(0, 0.0)
    assert resting.order() == [(0, False), (1, False)]
    now += 1
    resting.answered(0, 0.0, LEAST_BYTES_PER_SECOND)
    assert resting.order() == [(0, False), (1, False)]
    resting.answered(0, 0.0, LEAST_BYTES_PER_SECOND - 1)
    assert resting.order() == [(1, False), (0, True)]
    resting.answered(0, now)
    assert resting.order() == [(0, False), (1, False)]


def test_where_all_are_slow_the_fault_may_be_ones_own() -> None:
    resting = CircuitBreaker(2, lambda: 10.0)
    for number in range(2):
        resting.answered(number, 0.0)
    assert resting.order() == [(0, False), (1, False)]
