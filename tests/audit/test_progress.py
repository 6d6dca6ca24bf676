"""Who watches an audit sees it come on round by round, and may end it between two rounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger.audit.engine import AuditCancelledError, AuditOptions, audit
from ledger.audit.report import AuditStep, StepOutcome
from tests.audit import deviations as dev
from tests.audit.runs import Deviation, Run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.result_log import AuditProgress


def test_failed_step_is_reported_at_once_and_never_as_passed(
    tmp_path: Path,
) -> None:
    run = Run.on_revm(tmp_path)
    seen: list[AuditProgress] = []
    with run.chain:
        run.play()
        run.play(Deviation(judgement=dev.wrong_model))
        report = audit(run.ledger, run.blobs, AuditOptions(progress=seen.append))
    first, second = seen
    assert {step.outcome for step in first.steps} == {None}
    told = {step.number: step.outcome for step in second.steps if step.outcome is not None}
    assert told == {AuditStep.MODEL: StepOutcome.FAILED}
    assert second.steps[AuditStep.MODEL - 1].contradictions == 1
    assert report.step(AuditStep.MODEL).contradictions == 1
    assert report.step(AuditStep.HEAD).outcome is StepOutcome.PASSED


def test_progress_is_plain_data(honest: Run) -> None:
    seen: list[AuditProgress] = []
    audit(honest.ledger, honest.blobs, AuditOptions(progress=seen.append))
    data = json.loads(json.dumps(seen[-1].as_dict()))
    assert (data["done"], data["total"], len(data["steps"])) == (5, 5, 10)
    expected = {"number": 1, "outcome": None, "contradictions": 0, "missing_count": 0}
    assert data["steps"][0] == expected


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_cancelled_audit_ends_after_the_round_without_a_report(honest: Run, rounds: int) -> None:
    seen: list[AuditProgress] = []
    conduct = AuditOptions(progress=seen.append, is_cancelled=lambda: len(seen) >= rounds)
    with pytest.raises(AuditCancelledError, match="it has come to no verdict"):
        audit(honest.ledger, honest.blobs, conduct)
    assert len(seen) == rounds


def test_a_chain_file_is_not_checked_after_cancellation(honest: Run) -> None:
    asked = 0

    def is_cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    with pytest.raises(AuditCancelledError):
        audit(honest.ledger, honest.blobs, AuditOptions(is_cancelled=is_cancelled))
    assert asked == 3 < honest.chain.head().number
