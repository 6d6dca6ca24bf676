"""The audit of a run with a distance of its owner's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, StepOutcome
from ledger.audit.round_checker import AuditWorkers
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import FolderBlobs
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

RULE = """
import numpy as np

def far(update, references):
    return np.abs(references - update).sum(axis=1)
"""
UNKNOWN = StepOutcome.NOT_CHECKABLE


@dataclass(frozen=True)
class OwnRun:
    """A run of two rounds with a rule of its owner's own, and the rule's file."""

    home: Path
    rule: Path

    def audited(self, *rules: Path, processes: int = 1) -> AuditReport:
        home = Home(self.home)
        manifest = read_run_manifest(home.run("run"))
        blobs = FolderBlobs(home.blobs)
        workers = (
            AuditWorkers(processes, partial(FolderBlobs, home.blobs), 0) if processes > 1 else None
        )
        with EmbeddedReader.open(home.chain) as chain:
            ledger = CommitteeLedger(chain, manifest.address, manifest.block)
            options = AuditOptions(rules=tuple(map(str, rules)), workers=workers)
            return audit(ledger, blobs, options)


def played(folder: Path, *settings: str) -> OwnRun:
    rule, home = folder / "rule.py", folder / "home"
    rule.write_text(RULE, "utf-8")
    words = [word for setting in settings for word in ("--set", setting.format(rule=rule))]
    succeeds("run", "--home", home, "--preset", "smoke", "--rounds", 2, *words, "--json")
    return OwnRun(home, rule)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> OwnRun:
    return played(tmp_path_factory.mktemp("own"), "protocol.distance={rule}:far")


def unchecked(report: AuditReport) -> set[AuditStep]:
    return {step.number for step in report.steps if step.outcome is UNKNOWN}


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("processes", [1, 2])
def test_with_the_file_every_step_passes(own: OwnRun, processes: int) -> None:
    report = own.audited(own.rule, processes=processes)
    assert report.outcome is AuditOutcome.PASSED
    assert report.counts["distances"] > 0


def test_without_the_file_its_steps_are_not_checkable(own: OwnRun) -> None:
    report = own.audited()
    assert report.outcome is AuditOutcome.INCOMPLETE
    assert unchecked(report) == {AuditStep.DISTANCES}
    step = next(step for step in report.steps if step.number is AuditStep.DISTANCES)
    assert {str(missing.need) for missing in step.missing} == {"own rule"}
    assert "rule.py:far (sha256 " in step.missing[0].sentence


def test_another_file_is_refused_with_both_digests(own: OwnRun, tmp_path: Path) -> None:
    other = tmp_path / "rule.py"
    other.write_text(RULE + "raise SystemExit('never run')\n", "utf-8")
    with pytest.raises(
        ConfigurationError, match=r"sha256 [0-9a-f]{64}, and this file has [0-9a-f]"
    ):
        own.audited(other)


def test_the_command_says_so_by_its_exit_code(own: OwnRun, tmp_path: Path) -> None:
    assert cmfl("audit", "--home", own.home).code == 3
    assert cmfl("audit", "--home", own.home, "--rules", own.rule, "--jobs", 1).code == 0
    other = tmp_path / "other.py"
    other.write_text("", "utf-8")
    assert "--rules" in refusal("audit", "--home", own.home, "--rules", other)
    assert "gone.py cannot be read" in refusal("audit", "--home", own.home, "--rules", "gone.py")


def test_a_round_is_checked_with_the_file(own: OwnRun, tmp_path: Path) -> None:
    bundle = tmp_path / "round.tar"
    written = succeeds("export", "bundle", "--home", own.home, "--round", 1, "--out", bundle)
    assert "INCOMPLETE" in written.out
    for check in (("round", 1, "--home", own.home), ("bundle", bundle, "--home", own.home)):
        without = cmfl("verify", *check)
        assert (without.code, "name your copy with --rules FILE" in without.out) == (3, True)
        assert cmfl("verify", *check, "--rules", own.rule).code == 0
        assert "gone.py cannot be read" in refusal("verify", *check, "--rules", "gone.py")
