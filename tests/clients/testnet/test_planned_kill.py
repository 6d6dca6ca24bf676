"""Each planned kill is one kill and one new beginning, however seldom somebody looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clients.testnet.supervision import KillStep, PlannedKill


def test_a_worker_is_killed_and_restarted_after_its_pause() -> None:
    kill = PlannedKill(at=5.0, down_seconds=2.0)
    turns = [kill.turn(float(now), is_up=True) for now in (4, 5, 6, 7, 8)]
    assert turns == [
        KillStep.NOTHING,
        KillStep.KILL,
        KillStep.WAIT,
        KillStep.BEGIN,
        KillStep.NOTHING,
    ]


def test_a_worker_that_ended_is_killed_after_its_restart() -> None:
    kill = PlannedKill(at=5.0, down_seconds=1.0)
    assert kill.turn(6.0, is_up=False) is KillStep.NOTHING
    assert kill.turn(7.0, is_up=True) is KillStep.KILL


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20).map(sorted))
def test_nobody_is_begun_who_was_not_killed(looks: list[float]) -> None:
    kill = PlannedKill(at=5.0, down_seconds=2.0)
    is_up = True
    for now in looks:
        turn = kill.turn(now, is_up=is_up)
        assert is_up is (turn in {KillStep.NOTHING, KillStep.KILL})
        is_up = turn not in {KillStep.KILL, KillStep.WAIT}
