"""An audit comes to the same verdict with compiled distances and without."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditStep
from ledger.audit.report_text import readable
from ledger.distances import machine_code
from ledger.protocol.rules.distance import plain_distances
from tests.audit import deviations as dev
from tests.audit.runs import PARAMETERS, Deviation, Run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.report import AuditReport

DOUBTFUL = Deviation(vectors=dev.scaled(1 + 1.7e-9))
FALSE = Deviation(vectors=dev.scaled(1 + 1e-6), record=dev.lies_count)


@pytest.fixture(params=[1, 3])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    found = Run.on_revm(tmp_path, replace(PARAMETERS, strategy=request.param))
    found.play()
    found.play(DOUBTFUL)
    return found


def test_verdict_does_not_depend_on_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    require_one_verdict(run, monkeypatch, AuditOutcome.PASSED)
    run.play(FALSE)
    report = require_one_verdict(run, monkeypatch, AuditOutcome.FAILED)
    assert report.step(AuditStep.DISTANCES).contradiction is not None, readable(report)


def require_one_verdict(
    run: Run, monkeypatch: pytest.MonkeyPatch, expected: AuditOutcome
) -> AuditReport:
    """Audit a run with compiled distances, with plain ones, and where nothing can be compiled."""
    compiled = audit(run.ledger, run.blobs)
    plain = audit(run.ledger, run.blobs, AuditOptions(distances=plain_distances))
    machine_code._attempted.cache_clear()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "llvmlite.binding", None)
        missing = audit(run.ledger, run.blobs)
    machine_code._attempted.cache_clear()
    assert compiled.as_dict() == plain.as_dict() == missing.as_dict(), readable(compiled)
    assert compiled.outcome is expected, readable(compiled)
    return compiled
