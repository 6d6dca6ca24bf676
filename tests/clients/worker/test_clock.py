"""The chain's time, as a worker tells it: never back, never behind a block that it has seen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clients.worker.clock import ChainClock, Moment
from ledger.chain.ports import Block
from tests.faults import times


def block(number: int, timestamp: int) -> Block:
    return Block(number, number.to_bytes(32), bytes(32), timestamp)


def test_a_slow_clock_goes_by_the_chain() -> None:
    clock = ChainClock()
    clock.see(block(7, 1000), Moment(wall=900, steady=50))
    assert clock.now(Moment(wall=900, steady=50)) == 1000
    assert clock.now(Moment(wall=903, steady=53)) == 1003, "three seconds have passed since"


def test_the_same_block_seen_again_is_no_news() -> None:
    clock = ChainClock()
    clock.see(block(7, 1000), Moment(wall=900, steady=50))
    clock.see(block(7, 1000), Moment(wall=905, steady=55))
    assert clock.now(Moment(wall=905, steady=55)) == 1005


def test_where_no_block_comes_the_wall_clock_goes_on() -> None:
    clock = ChainClock()
    clock.see(block(7, 1000), Moment(wall=1600, steady=50))
    assert clock.now(Moment(wall=1601, steady=51)) == 1601


def test_a_clock_that_is_set_back_does_not_take_time_back() -> None:
    clock = ChainClock()
    assert clock.now(Moment(wall=1600, steady=50)) == 1600
    assert clock.now(Moment(wall=100, steady=51)) == 1600


moments = st.builds(Moment, st.floats(0, 1e9, allow_nan=False), st.floats(0, 1e6, allow_nan=False))


@settings(max_examples=times(30, 1000))
@given(st.lists(st.tuples(st.integers(0, 10**9), moments), min_size=1, max_size=20))
def test_time_never_goes_back_and_is_never_behind_a_block(
    seen: list[tuple[int, Moment]],
) -> None:
    clock, last = ChainClock(), float("-inf")
    for number, (timestamp, moment) in enumerate(seen):
        clock.see(block(number, timestamp), moment)
        now = clock.now(moment)
        # Floats of that size: an addition and a subtraction lose less than a microsecond.
        assert now >= timestamp - 1e-6
        assert now >= last
        last = now
