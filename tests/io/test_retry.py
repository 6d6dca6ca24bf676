"""Something is asked again while it may help, and neither more often nor longer than is said."""

from __future__ import annotations

import pytest

from ledger.io.retry import RetryPolicy


class Clock:
    """Time that goes by only while somebody waits, or asks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked_at: list[float] = []

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fails_after(self, seconds: float) -> str:
        self.asked_at.append(self.now)
        self.now += seconds
        raise ValueError("not now")


@pytest.mark.parametrize(
    ("each_takes", "most", "asked_at"),
    [(0.0, 60.0, [0, 1, 4]), (2.0, 60.0, [0, 3, 8]), (2.0, 4.0, [0, 3]), (5.0, 4.0, [0])],
)
def test_no_attempt_begins_later_than_is_said(
    each_takes: float, most: float, asked_at: list[float]
) -> None:
    clock = Clock()
    patience = RetryPolicy((1.0, 3.0), most, clock.sleep, clock.time)
    with pytest.raises(ValueError, match="not now"):
        patience.ask(lambda: clock.fails_after(each_takes), lambda _: True)
    assert clock.asked_at == asked_at


def test_what_does_not_pass_is_asked_once() -> None:
    clock = Clock()
    patience = RetryPolicy((1.0, 3.0), sleep=clock.sleep, clock=clock.time)
    with pytest.raises(ValueError, match="not now"):
        patience.ask(lambda: clock.fails_after(0), lambda error: isinstance(error, KeyError))
    assert clock.asked_at == [0]
