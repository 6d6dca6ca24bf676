"""Ten steps, each in its place, and every thing that can be found has one of them."""

from __future__ import annotations

from collections import Counter

import pytest

from ledger.audit.checks.belonging import left_open, step_of_field, step_of_refusal
from ledger.audit.checks.order import CHECKS
from ledger.audit.codes import Fact, Need, Step
from ledger.audit.observations import (
    Disagreement,
    EventFieldMismatch,
    MalformedEvent,
    RefusedCall,
    Unavailable,
)
from ledger.audit.report import Contradiction, MissingInput
from ledger.protocol import errors, ledger_state
from ledger.protocol.errors import REFUSALS


def test_the_steps_are_numbered_in_their_order() -> None:
    assert [step.NUMBER for step in CHECKS] == list(Step)
    assert len({step.TITLE for step in CHECKS}) == len(CHECKS)


def test_every_refusal_fails_exactly_one_step() -> None:
    found: Counter[Step] = Counter()
    for refusal in REFUSALS.values():
        seen = RefusedCall(3, 1, b"hash", refusal())
        said = [(step.NUMBER, one) for step in CHECKS for one in step.check(seen)]
        [(number, contradiction)] = said
        assert number is step_of_refusal(refusal)
        assert isinstance(contradiction, Contradiction)
        assert refusal.fact in contradiction.sentence
        found[number] += 1
    assert set(found) == {
        Step.DEPLOYMENT,
        Step.CERTIFICATES,
        Step.SAMPLING,
        Step.RANKING,
        Step.COMPLETENESS,
    }


def test_a_refusal_that_nobody_has_placed_is_not_passed_over() -> None:
    class NewError(errors.Refusal):
        fact = "something new"

    [contradiction] = [
        one for step in CHECKS for one in step.check(RefusedCall(3, 1, b"", NewError()))
    ]
    assert isinstance(contradiction, Contradiction)
    assert contradiction.true == "something new"


@pytest.mark.parametrize("need", Need)
def test_what_is_not_served_leaves_its_steps_open(need: Need) -> None:
    said = {step.NUMBER: list(step.check(Unavailable(3, need, 1, "why"))) for step in CHECKS}
    assert tuple(number for number, found in said.items() if found) == left_open(need)
    assert all(isinstance(one, MissingInput) for found in said.values() for one in found)
    assert left_open(need)


@pytest.mark.parametrize("fact", Fact)
def test_answers_that_disagree_fail_exactly_one_step(fact: Fact) -> None:
    said = [one for step in CHECKS for one in step.check(Disagreement(3, fact, "a", "b", "c"))]
    assert said == [Contradiction(fact, None, (), "a", "b", "c")]


def test_every_field_of_every_event_has_its_step() -> None:
    kinds = ledger_state.Event.__args__
    for kind in kinds:
        for name in kind.__dataclass_fields__:
            seen = EventFieldMismatch(3, 1, kind, name, 1, 2, is_made=True)
            [number] = [step.NUMBER for step in CHECKS if list(step.check(seen))]
            assert number is step_of_field(kind, name)
        assert (
            len([one for step in CHECKS for one in step.check(MalformedEvent(3, 1, kind, "x"))])
            == 1
        )
