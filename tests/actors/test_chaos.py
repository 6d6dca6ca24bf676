"""No interleaving makes an honest key contradict itself, and none keeps a round from its end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.actors.chaos import Chaos, ChaosThenCalm
from tests.faults import times


def test_honest_key_signs_one_vote_per_slot_and_stays_unbanned() -> None:
    examples = times(15, 400)
    run_state_machine_as_test(
        Chaos, settings=settings(max_examples=examples, stateful_step_count=50)
    )


def test_after_any_chaos_a_round_ends_once_everything_is_delivered() -> None:
    examples = times(8, 200)
    run_state_machine_as_test(
        ChaosThenCalm, settings=settings(max_examples=examples, stateful_step_count=40)
    )
