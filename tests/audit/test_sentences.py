"""Words for codes: every code has some, and what others wrote stays text in them."""

from __future__ import annotations

import pytest

from ledger.audit.codes import Fact, FindingKind, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import (
    DROPOUTS,
    INCIDENTS,
    MOST_CHARACTERS,
    PHASES,
    REFUSALS,
    TITLES,
    happened,
    listed,
    plain,
    text_of,
    why,
)
from ledger.audit.steps.objections import CONTRADICTED, UNCHECKED
from ledger.protocol.doubts import Objection
from ledger.protocol.types import ClientId, DropoutReason, IncidentKind, Phase, RefusalReason

NOT_ASKED = {
    Objection.PAYLOAD_HELD,
    Objection.VECTOR_LEFT_OUT,
    Objection.MODEL_UNKNOWN,
    Objection.MODEL_NOT_FINITE,
}
"""Objections of members that were there in time, and those that step 9 finds by itself."""


def test_every_code_has_words() -> None:
    assert set(TITLES) == set(Step)
    assert set(DROPOUTS) == set(DropoutReason)
    assert set(REFUSALS) == set(RefusalReason)
    assert set(INCIDENTS) == set(IncidentKind)
    assert set(PHASES) == set(Phase)
    for fact in Fact:
        assert Contradiction(fact, subject="S", recorded="R", true="T").sentence
    for need in Need:
        assert Missing(need, 3, (ClientId(1), ClientId(2))).sentence.startswith("round 3, clients")
    for kind in FindingKind:
        assert happened(kind)


def test_every_objection_has_its_step() -> None:
    assert not CONTRADICTED.keys() & UNCHECKED.keys()
    assert CONTRADICTED.keys() | UNCHECKED.keys() | NOT_ASKED == set(Objection)


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


def test_a_long_list_is_cut() -> None:
    assert text_of((b"\x01", 2, (3,))) == "(0x01, 2, (3))"
    assert text_of(tuple(range(17))).endswith("14, 15, ... 17 in all)")
    assert listed((1, 2, 3), most=2) == "1, 2 and 1 more"
    assert why(None) == ""
