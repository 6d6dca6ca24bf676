"""Words for codes: every code has some, and what others wrote stays text in them."""

from __future__ import annotations

import pytest

from ledger.audit.checks.objections import CONTRADICTED, UNCHECKED
from ledger.audit.checks.order import CHECKS
from ledger.audit.codes import Fact, FindingKind, Need, Step
from ledger.audit.report import Contradiction, MissingInput
from ledger.audit.sentences import MOST_CHARACTERS, happened, listed, plain, text_of, why
from ledger.protocol.descriptions import DROPOUTS, INCIDENTS, PHASES, REFUSALS
from ledger.protocol.types import ClientId, DropoutReason, IncidentKind, Phase, RefusalReason
from ledger.protocol.validation import ViolationCode

NOT_ASKED = {
    ViolationCode.PAYLOAD_HELD,
    ViolationCode.VECTOR_LEFT_OUT,
    ViolationCode.MODEL_UNKNOWN,
    ViolationCode.MODEL_NOT_FINITE,
}
"""Objections of members that were there in time, and those that step 9 finds by itself."""


def test_every_code_has_words() -> None:
    assert [step.NUMBER for step in CHECKS] == list(Step)
    assert all(step.TITLE for step in CHECKS)
    assert set(DROPOUTS) == set(DropoutReason)
    assert set(REFUSALS) == set(RefusalReason)
    assert set(INCIDENTS) == set(IncidentKind)
    assert set(PHASES) == set(Phase)
    for fact in Fact:
        assert Contradiction(fact, subject="S", recorded="R", true="T").sentence
    for need in Need:
        assert MissingInput(need, 3, (ClientId(1), ClientId(2))).sentence.startswith(
            "round 3, clients"
        )
    for kind in FindingKind:
        assert happened(kind)


def test_every_objection_has_its_step() -> None:
    assert not CONTRADICTED.keys() & UNCHECKED.keys()
    assert CONTRADICTED.keys() | UNCHECKED.keys() | NOT_ASKED == set(ViolationCode)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[/] all is well", "(/) all is well"),
        ("two\nlines\x1b[2J", "two?lines?(2J"),
        ("Größe {true}", "Gr??e {true}"),
        ("x" * 1000, "x" * MOST_CHARACTERS),
    ],
)
def test_what_others_wrote_stays_text(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert shown in Contradiction(Fact.CHAIN_FILE, true=text).sentence


def test_what_is_missing_is_said_with_and_without_its_reason() -> None:
    assert MissingInput(Need.CHAIN).sentence == "the chain cannot be read any further"
    assert MissingInput(Need.CHAIN, detail="the node [is] gone").sentence == (
        "the chain cannot be read any further: the node (is) gone"
    )


def test_a_report_s_data_holds_no_more_of_others_text_than_its_sentences() -> None:
    long = "x" * (2 * MOST_CHARACTERS)
    for data in (
        Contradiction(Fact.CHAIN_FILE, None, (), long, long, long).as_dict(),
        MissingInput(Need.CHAIN, detail=long).as_dict(),
    ):
        texts = [value for value in data.values() if isinstance(value, str)]
        assert max(map(len, texts)) < 3 * MOST_CHARACTERS
        assert long not in texts


def test_a_long_list_is_cut() -> None:
    assert text_of((b"\x01", 2, (3,))) == "(0x01, 2, (3))"
    assert text_of(tuple(range(17))).endswith("14, 15, ... 17 in all)")
    assert listed((1, 2, 3), most=2) == "1, 2 and 1 more"
    assert why(None) == ""
