"""`cmfl audit` on an earlier report and with several processes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cmfl.access.target import Target
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.manifest import read_run_manifest, write_manifest
from ledger.io.home import Home
from tests.cmfl.commands.conftest import SHARED, cmfl, first_decided, refusal, succeeds
from tests.support.creations import FLAGS, planted

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = SHARED


@pytest.fixture
def report(home: Path, tmp_path: Path) -> Path:
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


def test_foreign_code_fails_step_one_with_a_report(copy: Path, tmp_path: Path) -> None:
    with Target(copy).writer() as chain:
        address = chain.send(None, bytes.fromhex("60016000f3"), 100_000).contract_address
    written = tmp_path / "report.json"
    found = cmfl("audit", "--home", copy, "--address", address, "--report", written, "--json")
    assert (found.code, found.json["outcome"]) == (1, "failed")
    assert found.json["steps"][0]["outcome"] == "failed"
    assert json.loads(written.read_text())["outcome"] == "failed"
    assert cmfl("rounds", "list", "--home", copy, "--address", address).code == 2


def test_another_creation_of_a_home_s_contract_fails_step_one(copy: Path) -> None:
    paths = Home(copy).run("run")
    manifest = read_run_manifest(paths)
    with Target(copy).writer() as chain:
        deployment = CommitteeLedger(chain, manifest.address).deployment()
        ledger = planted(chain, deployment, {FLAGS: 1}, chain.next_nonce())
        made = ledger.creation()
    changed = replace(
        manifest,
        address=ledger.address,
        block=made.block_number,
        transaction=f"0x{made.hash.hex()}",
    )
    write_manifest(paths.manifest, changed)
    found = cmfl("audit", "--home", copy, "--json")
    assert (found.code, found.json["steps"][0]["outcome"]) == (1, "failed")
    assert cmfl("rounds", "list", "--home", copy).code == 2
