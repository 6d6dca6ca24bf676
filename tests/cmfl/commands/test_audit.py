"""`cmfl audit` on an earlier report and with several processes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import FolderBlobs
from tests.cmfl.commands.conftest import SHARED, cmfl, first_decided, refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED


@pytest.fixture
def report(home: Path, tmp_path: Path) -> Path:
    """Return the report of an audit of the shared home."""
    path = tmp_path / "report.json"
    succeeds("audit", "--home", home, "--report", path)
    return path


def test_an_audit_builds_on_an_earlier_report_and_says_so(home: Path, report: Path) -> None:
    again = report.with_name("again.json")
    found = succeeds("audit", "--home", home, "--since", report, "--json", "--report", again).json
    assert (found["outcome"], found["whole"], found["rounds"]) == ("passed", False, 5)
    assert (found["built_on"]["rounds"], found["built_on"]["audits"]) == (5, 1)
    text = succeeds("audit", "--home", home, "--since", again).out
    assert "Rounds 1 to 5 by 2 earlier audits, which this one trusts: sha256 of its" in text
    assert text.rstrip().endswith(
        "PASSED: nothing has ended since the earlier audit, which this one trusts"
    )


def test_a_report_that_cannot_be_built_on_is_refused(
    home: Path, copy: Path, report: Path, tmp_path: Path
) -> None:
    since = ("audit", "--home", home, "--since")
    assert refusal(*since, tmp_path / "none.json") == (
        f"--since {tmp_path / 'none.json'}: No such file or directory"
    )
    assert refusal(*since, tmp_path).endswith("it is no file, but a folder, a pipe or a device")
    report.write_text("{\x1b[31m", encoding="utf-8")
    assert "the earlier report is no JSON" in refusal(*since, report)
    shown = succeeds("rounds", "show", first_decided(copy), "--home", copy, "--json").json
    digest = shown["record"]["digest"].removeprefix("0x")
    (copy / "blobs" / digest[:2] / digest).unlink()
    assert cmfl("audit", "--home", copy, "--report", report).code in {1, 3}
    assert "must be passed for an audit to build on it" in refusal(*since, report)


def test_several_processes_print_the_same_report(home: Path) -> None:
    one, several = (
        succeeds("audit", "--home", home, "--json", "--jobs", jobs).out for jobs in (1, 3)
    )
    assert json.loads(one) == json.loads(several)
    assert "greater than or equal to 1" in refusal("audit", "--home", home, "--jobs", 0)


@pytest.mark.parametrize("lost", ["*-wal", "*.sqlite"])
def test_an_audit_names_the_rollback_of_a_chain_that_lost_its_newest_blocks(
    tmp_path: Path, lost: str
) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    configuration = load("smoke", settings=("protocol.rounds=1",))
    with (
        EmbeddedChain.create(home / "chain.sqlite") as chain,
        open_run(home, "run", configuration, chain, FolderBlobs(home / "blobs")) as run,
    ):
        run.go_on(lambda _: None)
        newest = chain.head().number
        shutil.copytree(home, copy, ignore=shutil.ignore_patterns(lost, "*-shm"))
    for command in ("audit",), ("rounds", "list"), ("clients", "list"):
        found = cmfl(*command, "--home", copy)
        assert f"block {newest} 0x" in found.out + found.err
        assert "was acknowledged here, but " in found.out + found.err
    assert refusal("audit", "--home", copy).startswith(f"{copy / 'chain.sqlite'}: block {newest} ")
