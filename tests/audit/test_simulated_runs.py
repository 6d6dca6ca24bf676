"""Runs of the product's own actors, some of them faulty, audited from their closed folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.audit.checks.rounds import BAN, DROPOUT, FALSE_SCORES, WRONG_PROPOSAL
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport, FindingKind
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import connect
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.storage.blobs import FolderBlobs
from tests.seeds import first_that_shows

ROUNDS = 3
FIVE_MEMBERS = (
    f"protocol.rounds={ROUNDS}",
    "protocol.clients=14",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
)


@pytest.mark.parametrize(
    ("faults", "kinds"),
    [
        (
            ("members.false-scores=1", "trainers.stray=1", "trainers.late=1"),
            {FALSE_SCORES, DROPOUT},
        ),
        (("members.wrong-proposal=2",), {WRONG_PROPOSAL}),
        (("members.equivocating=1", "trainers.self-ban=1", "trainers.copied=1"), {BAN, DROPOUT}),
        (("members.whitewashing=1", "members.grinding=1", "members.view-jumper=1"), set()),
    ],
)
def test_a_simulated_run_passes_and_its_faults_are_named(
    tmp_path: Path, faults: tuple[str, ...], kinds: set[FindingKind]
) -> None:
    settings = (*FIVE_MEMBERS, *(f"malice.{fault}" for fault in faults))

    def play(seed: int) -> AuditReport:
        report = audited(tmp_path / str(seed), (*settings, f"seed={seed}"))
        assert report.outcome is AuditOutcome.PASSED, readable(report)
        assert report.rounds == ROUNDS
        return report

    def names_all(report: AuditReport) -> bool:
        return kinds <= {finding.kind for finding in report.findings}

    # Who is faulty may have nothing to do in so few rounds.
    first_that_shows(names_all, play, first=2)


def audited(home: Path, settings: tuple[str, ...]) -> AuditReport:
    """Play a run, and audit what it left."""
    home.mkdir()
    with (
        EmbeddedChain.create(home / "chain.sqlite", synchronous="NORMAL") as chain,
        open_run(
            home, "smoke", load("smoke", settings=settings), chain, FolderBlobs(home / "blobs")
        ) as run,
    ):
        run.go_on(lambda _row: None)
    with EmbeddedReader.open(home / "chain.sqlite") as reader:
        return audit(connect(reader, manifest_of(home, "smoke")), FolderBlobs(home / "blobs"))
