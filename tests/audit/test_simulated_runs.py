"""Runs of the product's own actors, some of them faulty, audited from their closed folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.configuration import load
from clients.runs.opening import opened
from clients.runs.recorded import manifest_of
from ledger.audit.audit import audit
from ledger.audit.codes import FindingKind, Outcome
from ledger.audit.readable import readable
from ledger.blobs.store import FolderBlobs
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader

if TYPE_CHECKING:
    from pathlib import Path

FIVE_MEMBERS = (
    "protocol.clients=14",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
)


@pytest.mark.parametrize(
    ("faults", "kinds"),
    [
        (
            ("members.false-scores=1", "trainers.stray=1", "trainers.late=1"),
            {FindingKind.FALSE_SCORES, FindingKind.DROPOUT},
        ),
        (("members.wrong-proposal=2",), {FindingKind.WRONG_PROPOSAL}),
        (
            ("members.equivocating=1", "trainers.self-ban=1", "trainers.copied=1"),
            {FindingKind.BAN, FindingKind.DROPOUT},
        ),
        (("members.whitewashing=1", "members.grinding=1", "members.view-jumper=1"), set()),
    ],
)
def test_a_simulated_run_passes_and_its_faults_are_named(
    tmp_path: Path, faults: tuple[str, ...], kinds: set[FindingKind]
) -> None:
    settings = (*FIVE_MEMBERS, *(f"malice.{fault}" for fault in faults))
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        opened(
            tmp_path,
            "smoke",
            load("smoke", settings=settings),
            chain,
            FolderBlobs(tmp_path / "blobs"),
        ) as run,
    ):
        run.go_on(lambda _row: None)
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as reader:
        ledger = connect(reader, manifest_of(tmp_path, "smoke"))
        report = audit(ledger, FolderBlobs(tmp_path / "blobs"))
    assert report.outcome is Outcome.PASSED, readable(report)
    assert report.rounds == 5
    assert kinds <= {finding.kind for finding in report.findings}, readable(report)
