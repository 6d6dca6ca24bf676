"""Words for codes: every code has some, and what others wrote stays text in them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from ledger.audit.checks import blob_commitments, certificates, completeness, distances, ranking
from ledger.audit.checks.common import CHAIN_UNAVAILABLE
from ledger.audit.checks.head_chain import CHAIN_FILE_DAMAGED
from ledger.audit.formatting import MAX_CHARACTERS, plain
from ledger.audit.report import Contradiction, Fact, Finding, FindingKind, MissingInput, Need
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
    tables = (check.VIOLATIONS for check in (blob_commitments, certificates, completeness, ranking))
    named = [*distances.VIOLATIONS, *distances.UNCHECKED, *chain.from_iterable(tables)]
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


def test_report_data_quotes_no_more_foreign_text_than_its_messages() -> None:
    long = "x" * (2 * MAX_CHARACTERS)
    for data in (
        Contradiction(CHAIN_FILE_DAMAGED, None, (), long, long, long).as_dict(),
        MissingInput(CHAIN_UNAVAILABLE, detail=long).as_dict(),
    ):
        texts = [value for value in data.values() if isinstance(value, str)]
        assert max(map(len, texts)) < 3 * MAX_CHARACTERS
        assert long not in texts
