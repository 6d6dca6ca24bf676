"""Ten checks, each in its place, and every difference that the replay finds fails one of them."""

from __future__ import annotations

import pytest

from ledger.audit.checks.all_checks import (
    CHECKS,
    malformed_event,
    run_checks,
    step_of_event,
    step_of_field,
    step_of_refusal,
    wrong_field,
)
from ledger.audit.observations import (
    Disagreement,
    Unavailable,
)
from ledger.audit.report import AuditStep, Contradiction, Fact, MissingInput, Need
from ledger.protocol import errors, ledger_state
from ledger.protocol.errors import REFUSALS
from tests.audit.codes import codes


def test_the_checks_are_numbered_in_their_order() -> None:
    assert [check.step for check in CHECKS] == list(AuditStep)
    assert len({check.title for check in CHECKS}) == len(CHECKS)


def test_no_refusal_event_or_field_belongs_to_two_checks() -> None:
    for claimed in (
        [refusal for check in CHECKS for refusal in check.refusals],
        [event for check in CHECKS for event in check.events],
        [name for check in CHECKS for name in check.event_fields],
    ):
        assert len(claimed) == len(set(claimed))


def test_every_refusal_fails_exactly_one_step() -> None:
    steps = set()
    for refusal in REFUSALS.values():
        steps.add(step_of_refusal(refusal))
    assert steps == {
        AuditStep.DEPLOYMENT,
        AuditStep.CERTIFICATES,
        AuditStep.SAMPLING,
        AuditStep.RANKING,
        AuditStep.COMPLETENESS,
    }


def test_a_refusal_without_a_step_is_not_passed_over() -> None:
    class NewError(errors.ProtocolRefusal):
        fact = "something new"

    assert step_of_refusal(NewError) is AuditStep.CERTIFICATES


@pytest.mark.parametrize("need", codes(Need), ids=str)
def test_what_is_not_served_leaves_its_steps_open(need: Need) -> None:
    results = list(run_checks(Unavailable(3, need, 1, "why")))
    assert tuple(step for step, _ in results) == need.steps
    assert {result for _, result in results} == {MissingInput(need, 1, detail="why")}


@pytest.mark.parametrize("fact", codes(Fact), ids=str)
def test_answers_that_disagree_fail_exactly_one_step(fact: Fact) -> None:
    [(step, result)] = run_checks(Disagreement(3, fact, "a", "b", "c"))
    assert step is fact.step
    assert result == Contradiction(fact, None, (), "a", "b", "c")


def test_every_event_and_each_of_its_fields_has_its_step() -> None:
    for kind in ledger_state.Event.__args__:
        for name in kind.__dataclass_fields__:
            mismatch = wrong_field(3, 1, kind, name, (1, 2), is_made=True)
            [(step, _)] = run_checks(mismatch)
            assert step is step_of_field(kind, name)
        [(step, _)] = run_checks(malformed_event(3, 1, kind, "why"))
        assert step is step_of_event(kind)
    assert step_of_event(None) is AuditStep.HEAD
