"""Ten checks, each in its place, and every difference that the replay finds fails one of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from ledger.audit.checks import rounds
from ledger.audit.checks.chain import (
    CHAIN_FILE_DAMAGED,
    malformed_event,
    step_of_event,
    step_of_field,
    step_of_refusal,
    wrong_field,
)
from ledger.audit.report import (
    MAX_CHARACTERS,
    AuditStep,
    Contradiction,
    Fact,
    Finding,
    FindingKind,
    MissingInput,
    Need,
    contradicted,
    not_served,
    plain,
)
from ledger.protocol import ledger_state
from ledger.protocol.errors import RefusalCode
from ledger.protocol.types import (
    DROPOUTS,
    INCIDENTS,
    PHASES,
    REFUSALS,
    ClientId,
    DropoutReason,
    IncidentKind,
    Phase,
    RefusalReason,
)
from ledger.protocol.validation import ViolationCode
from tests.audit.codes import codes


def test_every_step_has_a_title_of_its_own() -> None:
    assert [int(step) for step in AuditStep] == list(range(1, 11))
    assert len({step.title for step in AuditStep}) == len(AuditStep)


def test_every_refusal_fails_exactly_one_step() -> None:
    steps = set()
    for refusal in RefusalCode:
        steps.add(step_of_refusal(refusal))
    assert steps == {
        AuditStep.DEPLOYMENT,
        AuditStep.CERTIFICATES,
        AuditStep.SAMPLING,
        AuditStep.RANKING,
        AuditStep.COMPLETENESS,
    }


def test_a_refusal_without_a_step_is_not_passed_over() -> None:
    assert step_of_refusal(RefusalCode.REQUEST_NOT_SIGNED) is AuditStep.CERTIFICATES


@pytest.mark.parametrize("need", codes(Need), ids=str)
def test_what_is_not_served_leaves_its_steps_open(need: Need) -> None:
    results = not_served(3, need, 1, "why")
    assert tuple(found.step for found in results) == need.steps
    assert {found.result for found in results} == {MissingInput(need, 1, detail="why")}


@pytest.mark.parametrize("fact", codes(Fact), ids=str)
def test_answers_that_disagree_fail_the_step_of_their_fact(fact: Fact) -> None:
    found = contradicted(3, fact, "a", "b", "c")
    assert found.step is fact.step
    assert found.result == Contradiction(fact, None, (), "a", "b", "c")


def test_every_event_and_each_of_its_fields_has_its_step() -> None:
    for kind in ledger_state.Event.__args__:
        for name in kind.__dataclass_fields__:
            mismatch = wrong_field(3, 1, kind, name, (1, 2), is_made=True)
            assert mismatch.step is step_of_field(kind, name)
        assert malformed_event(3, 1, kind, "why").step is step_of_event(kind)
    assert step_of_event(None) is AuditStep.HEAD


# Words for codes: every code has some, and what others wrote stays text in them.


NOT_ASKED = {
    ViolationCode.PAYLOAD_HELD,
    ViolationCode.VECTOR_LEFT_OUT,
    ViolationCode.MODEL_UNKNOWN,
    ViolationCode.MODEL_NOT_FINITE,
}
"""Violations for members that were there in time, and those that step 9 finds by itself."""


def test_every_code_has_words() -> None:
    assert set(DROPOUTS) == set(DropoutReason)
    assert set(REFUSALS) == set(RefusalReason)
    assert set(INCIDENTS) == set(IncidentKind)
    assert set(PHASES) == set(Phase)
    for fact in codes(Fact):
        assert Contradiction(fact, subject="S", recorded="R", true="T").sentence
    for need in codes(Need):
        assert MissingInput(need, 3, (ClientId(1), ClientId(2))).sentence.startswith(
            "round 3, clients"
        )
    for kind in codes(FindingKind):
        finding = Finding(kind, 3, (), (), proven=True)
        assert "{" not in finding.sentence


def test_every_code_is_unique() -> None:
    assert len(codes(Need)) == len({need.code for need in codes(Need)})
    assert len(codes(FindingKind)) == len({kind.code for kind in codes(FindingKind)})
    assert len(codes(Fact)) == len({fact.code for fact in codes(Fact)})


def test_every_violation_has_its_step() -> None:
    tables = (
        rounds.BLOB_VIOLATIONS,
        rounds.CERTIFICATE_VIOLATIONS,
        rounds.COMPLETENESS_VIOLATIONS,
        rounds.RANKING_VIOLATIONS,
    )
    named = [*rounds.SCORE_VIOLATIONS, *rounds.UNCHECKED, *chain.from_iterable(tables)]
    assert Counter(named) == Counter(set(ViolationCode) - NOT_ASKED)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[/] all is well", "(/) all is well"),
        ("two\nlines\x1b[2J", "two?lines?(2J"),
        ("Größe {true}", "Gr??e {true}"),
        ("x" * 1000, "x" * MAX_CHARACTERS),
    ],
)
def test_what_others_wrote_stays_text(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert shown in Contradiction(CHAIN_FILE_DAMAGED, true=text).sentence
