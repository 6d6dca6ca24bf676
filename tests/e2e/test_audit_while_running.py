"""Audits beside a run that is being written say that all is true as of the head that they read."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import read_manifest
from ledger.chain.embedded import integrity
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.storage.blobs import FolderBlobs
from tests.e2e.sessions import Home, finish
from tests.faults import times
from tests.patience import wait_until

if TYPE_CHECKING:
    from tests.processes import Forks

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


@pytest.fixture
def running(forks: Forks, tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home", ("training.path=plain", "protocol.rounds=100000"))
    with home.start(forks) as writer:
        wait_until(lambda: home.rows() >= 2 or writer.poll() is not None)
        yield home
        assert writer.poll() is None, "the run has ended before its last audit"


# A run of its own for each few audits: the next audit has what was added during the one before.
@pytest.mark.parametrize("again", range(times(1, 10)))
def test_audits_during_a_run_pass_as_of_their_head(
    forks: Forks, running: Home, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    blobs, verify_chain = FolderBlobs(running.path / "blobs"), integrity.verify_chain
    with EmbeddedReader.open(running.chain) as chain:

        def growing(*arguments: Any, **options: Any) -> None:
            wait = functools.partial(wait_for_more, chain, chain.head().number)
            verify_chain(*arguments, **options | {"progress": lambda _: wait()})

        monkeypatch.setattr(integrity, "verify_chain", growing)
        ledger = connect(chain, read_manifest(running.manifest))
        for _ in range(4):
            report = audit(ledger, blobs)
            assert report.outcome is AuditOutcome.PASSED, readable(report)
            assert report.deployment["head_block"] < chain.head().number
        told = finish(forks.start("audit", "--home", running.path, "--json"))
        assert told["outcome"] == "passed", told
        block = chain.block(told["deployment"]["head_block"])
        assert told["deployment"]["head_block_hash"] == f"0x{block.hash.hex()}"


def wait_for_more(chain: EmbeddedReader, number: int) -> None:
    wait_until(lambda: chain.head().number > number + 1, lambda: "the run does not go on")
