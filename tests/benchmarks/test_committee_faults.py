"""The table of what faulty members come to: printed, asserted, and equal to the page's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from benchmarks.committee_faults import COLUMNS, MAJORITY, MISDEEDS, Misdeed, Trials, table
from clients.adversaries.faults import MemberFault
from ledger.audit.checks.rounds import FALSE_SCORES
from ledger.audit.report import AuditOutcome
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.audit.revm_history import RevmHistory
from tests.faults import times

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"
COLLUDING, FAVOURING = MemberFault.COLLUDING, MemberFault.FAVOURING
CHOSEN = (Misdeed(FAVOURING, 1), Misdeed(COLLUDING, MAJORITY))
"""What is played in every test run; `make faults` plays all."""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    with RevmHistory() as chain:
        yield Trials(cast("EmbeddedChain", chain), tmp_path_factory.mktemp("committee-faults"))


def cells_of(line: str) -> list[str]:
    return line.strip("| ").split(" | ")


def lines_of_page() -> list[list[str]]:
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if cells_of(line) == list(COLUMNS))
    rows = [cells_of(line) for line in lines[start + 2 :] if line.startswith("| ")]
    return rows[: len(MISDEEDS)]


def test_the_page_has_each_fault_alone_and_as_a_majority() -> None:
    expected = [[misdeed.name, f"{misdeed.seats} of 5"] for misdeed in MISDEEDS]
    assert [row[:2] for row in lines_of_page()] == expected
    alone = {misdeed.fault for misdeed in MISDEEDS if misdeed.seats == 1}
    assert alone == set(MemberFault)


def test_the_page_says_what_is_played(trials: Trials) -> None:
    played = MISDEEDS if times(0, 1) else CHOSEN
    found = {tuple(row[:2]): row for row in lines_of_page()}
    for line in list(table(trials, played))[2:]:
        print(line)  # noqa: T201 - shown by pytest -s
        cells = cells_of(line)
        told = found[tuple(cells[:2])]
        assert cells[:-1] == told[:-1]
        # Training repeats its bits on one kind of processor; distances are told to one digit.
        assert float(cells[-1]) == pytest.approx(float(told[-1]), abs=0.11)


def test_checked_scores_stop_favouring_and_abandoned_rounds_change_nothing(trials: Trials) -> None:
    one = trials.outcome(Misdeed(FAVOURING, 1))
    assert (one.counted, one.refused, one.report.outcome) == (4, 1, AuditOutcome.PASSED)
    assert one.named() == one.faulty
    assert one.kinds() == [FALSE_SCORES.code]
    three = trials.outcome(Misdeed(COLLUDING, MAJORITY))
    assert not three.row.decided
    assert three.model.tobytes() == three.first.tobytes()
    assert three.report.outcome is AuditOutcome.PASSED
