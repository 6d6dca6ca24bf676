"""A worker's chain: nothing final is taken back, and its time does not go back either."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clients.worker.background import COUNTED_BLOCKS, ChainClock, Moment
from clients.worker.worker import ChainFinalityGuard
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.finality import AncestryCheck, FinalityCheckpoints
from ledger.chain.ports import Block, ChainMovedError, ChainReader, NotServedError, ReorganisedError
from ledger.protocol.types import Digest
from tests.faults import times


def look(
    watched: ChainFinalityGuard, chain: ChainReader, lineage: AncestryCheck | None = None
) -> None:
    watched.require_unchanged(chain.head(), lineage or AncestryCheck(chain.block))


def test_processed_state_survives_and_is_checked_against_the_chain(tmp_path: Path) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9):
        pass
    shutil.copy(tmp_path / "one.sqlite", tmp_path / "two.sqlite")
    with EmbeddedChain.open(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(3)
        watched = ChainFinalityGuard(chain, FinalityCheckpoints(noted, chain))
        look(watched, chain)
        watched.act_on(2)
        watched.act_on(1)  # older: nothing new
        chain.mine(1)
        look(watched, chain)
        look(ChainFinalityGuard(chain, FinalityCheckpoints(noted, chain)), chain)
    with EmbeddedChain.open(tmp_path / "two.sqlite", clock=lambda: 2e9) as other:
        other.mine(1)
        behind = ChainFinalityGuard(other, FinalityCheckpoints(noted, other))
        with pytest.raises(NotServedError, match="ends with block 1, but block 2"):
            look(behind, other)
        other.mine(1)
        with pytest.raises(ReorganisedError, match="block 2 was"):
            look(behind, other)
        accepted = FinalityCheckpoints(noted, other)
        assert accepted.accept(other) == [2]
        look(ChainFinalityGuard(other, accepted), other)


def test_a_head_of_one_wrong_answer_is_not_noted(tmp_path: Path) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(2)
        watched = ChainFinalityGuard(chain, FinalityCheckpoints(noted, chain))
        false_head = replace(chain.head(), hash=Digest(bytes(32)))
        watched.require_unchanged(false_head, AncestryCheck(chain.block))
        with pytest.raises(ChainMovedError):
            watched.act_on(2)
        look(watched, chain)
        watched.act_on(2)
        look(ChainFinalityGuard(chain, FinalityCheckpoints(noted, chain)), chain)


def test_a_head_that_was_refused_vouches_for_nothing(tmp_path: Path) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(2)
        watched = ChainFinalityGuard(chain, FinalityCheckpoints(noted, chain))
        look(watched, chain)
        watched.act_on(2)
    with EmbeddedChain.create(tmp_path / "two.sqlite", clock=lambda: 1e9) as other:
        lineage = AncestryCheck(other.block)
        other.send(other.sender, b"", 30_000)
        watched = ChainFinalityGuard(other, FinalityCheckpoints(noted, other))
        other.mine(1)
        for _ in range(3):
            with pytest.raises(ReorganisedError):
                look(watched, other, lineage)
            other.mine(1)


def block(number: int, timestamp: int) -> Block:
    return Block(number, number.to_bytes(32), bytes(32), timestamp)


def test_a_slow_clock_goes_by_the_chain() -> None:
    clock = ChainClock()
    clock.see(block(7, 1000), Moment(wall=900, steady=50))
    assert clock.now(Moment(wall=900, steady=50)) == 1000
    assert clock.now(Moment(wall=903, steady=53)) == 1003, "three seconds have passed since"


def test_a_chain_that_falls_behind_takes_its_time_along() -> None:
    # A node that says a block a second, and needs 1.05 s for each: in the end a minute behind.
    clock, seconds, told = ChainClock(), 1.05, 0.0
    for number in range(1200):
        clock.see(block(number, number), Moment(wall=seconds * number, steady=seconds * number))
        told = clock.now(Moment(wall=seconds * number, steady=seconds * number))
        if number > COUNTED_BLOCKS:
            assert told - number < COUNTED_BLOCKS * (seconds - 1)
    assert seconds * 1199 - told > 59


def test_a_block_that_is_seen_late_takes_no_time_back() -> None:
    clock = ChainClock()
    seen = [*((time, time + 0.25) for time in range(10)), (17, 23.0), (30, 30.25)]
    for timestamp, at in seen:
        clock.see(block(timestamp, timestamp), Moment(wall=at, steady=at))
        told = clock.now(Moment(wall=at, steady=at))
        assert told == (at - 0.25 if timestamp else at), "a quarter of a second of looking"


def test_on_a_quiet_chain_the_wall_clock_counts_first() -> None:
    clock = ChainClock()
    clock.see(block(7, 1000), Moment(wall=1040, steady=50))
    assert clock.now(Moment(wall=1041, steady=51)) == 1041
    clock.see(block(8, 1030), Moment(wall=1042, steady=52))
    assert clock.now(Moment(wall=1042, steady=52)) == 1030, "the chain's clock is behind"
    assert clock.now(Moment(wall=1054, steady=64)) == 1042


@pytest.mark.parametrize("wrong_by", [40, 3600, 365 * 86400, -365 * 86400])
def test_a_wrong_wall_clock_counts_until_the_next_block(wrong_by: int) -> None:
    clock = ChainClock()
    for second in range(20):
        moment = Moment(wall=1000 + wrong_by + second, steady=second)
        clock.see(block(second, 1000 + second), moment)
        told = clock.now(moment)
        assert told == 1000 + second or not second
    assert clock.now(Moment(wall=0, steady=80)) == 1080


def test_time_advances_despite_a_reset_clock_and_shared_seconds() -> None:
    clock = ChainClock()
    for second in range(3):
        clock.see(block(second, 4600 + second), Moment(wall=1000, steady=second))
    # Two blocks a second for ten minutes, none dated before the others, and then as ever.
    for half in range(1, 1200):
        moment = Moment(wall=1000, steady=2 + half / 2)
        clock.see(block(2 + half, 4602), moment)
        assert clock.now(moment) == 4602 + half / 2
    last = COUNTED_BLOCKS + 600
    for second in range(last + 1):
        clock.see(block(2000 + second, 4603 + second), Moment(wall=1000, steady=602 + second))
    assert clock.now(Moment(wall=1000, steady=602 + last)) == 4603 + last


@pytest.mark.parametrize("answers", [[101], [99, 100, 101], [100, 101], [102]])
def test_a_block_unknown_to_the_chain_is_eventually_distrusted(answers: list[int]) -> None:
    clock = ChainClock()
    for number in range(90, 101):
        clock.see(block(number, number), Moment(wall=number, steady=number))
    clock.see(block(101, 10**9), Moment(wall=101, steady=101))
    assert clock.now(Moment(wall=101, steady=101)) == 10**9
    for number in answers:
        clock.see(block(number, number), Moment(wall=102, steady=102))
    clock.see(block(103, 103), Moment(wall=103, steady=103))
    assert clock.now(Moment(wall=103, steady=103)) <= 103


def test_a_node_that_falls_behind_takes_no_time_back() -> None:
    clock, told = ChainClock(), []
    for number in (98, 99, 100, 97, 98):
        clock.see(block(number, number), Moment(wall=0, steady=100))
        told.append(clock.now(Moment(wall=0, steady=100)))
    assert told == [98, 99, 100, 100, 100]


moments = st.builds(Moment, st.floats(0, 1e9, allow_nan=False), st.floats(0, 1e6, allow_nan=False))


@settings(max_examples=times(30, 1000))
@given(st.lists(st.tuples(st.integers(0, 10**8), moments), min_size=1, max_size=20))
@example([(0, Moment(0, 0)), (0, Moment(0, 2)), (1, Moment(0, 0))])
def test_time_never_goes_back_and_is_never_behind_a_block(seen: list[tuple[int, Moment]]) -> None:
    clock, last, timestamp, steady, stamps = ChainClock(), float("-inf"), 0, 0.0, [-1]
    for number, (later, drawn) in enumerate(seen):
        timestamp, steady = timestamp + later, steady + drawn.steady  # which never goes back
        moment = Moment(drawn.wall, steady)
        clock.see(block(number, timestamp), moment)
        now = clock.now(moment)
        # Floats of that size: an addition and a subtraction lose less than a microsecond.
        assert now >= timestamp - 1e-6
        is_first_later = timestamp not in stamps and len({*stamps}) == 2
        assert now >= last or is_first_later, "a wall clock is forgotten with the first new second"
        last = now
        stamps.append(timestamp)
