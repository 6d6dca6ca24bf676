"""`cmfl verify` and `cmfl export`: a home that real rounds have filled, and what others send."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cmfl.where import Target
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest, write_manifest
from ledger.io.home import Home
from tests.cmfl.commands.conftest import SHARED, cmfl, first_decided, refusal, succeeds
from tests.support.creations import FLAGS, planted

pytestmark = SHARED


@pytest.fixture(scope="module")
def used(home: Path) -> tuple[int, int]:
    """The first decided round, and a client whose update was used in it."""
    number = first_decided(home)
    shown = succeeds("verify", "round", number, "--home", home, "--json").json
    assert shown["outcome"] == "passed"
    for client in range(14):
        found = cmfl("verify", "client", "--round", number, "--client", client, "--home", home)
        assert found.code == 0, found
        if "was used with weight" in found.out:
            return number, client
    raise AssertionError("nobody's update was used")


@pytest.fixture(scope="module")
def sent(
    home: Path, used: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder, (number, client) = tmp_path_factory.mktemp("sent"), used
    proof, bundle = folder / "proof.json", folder / "bundle.tar"
    asked = ("--round", number, "--home", home)
    succeeds("export", "proof", *asked, "--client", client, "--out", proof)
    succeeds("export", "bundle", *asked, "--out", bundle)
    return proof, bundle


def test_one_line_answers_and_verbose_shows_each_step(home: Path, used: tuple[int, int]) -> None:
    number, client = used
    asked = ("verify", "client", "--round", number, "--client", client, "--home", home)
    (line,) = succeeds(*asked).out.splitlines()
    lines = cmfl(*asked, "-v").out.splitlines()
    assert lines[0] == line
    assert lines[0].startswith(f"PROVEN: in round {number} the update of client {client} was used")
    assert "ranked" in lines[0]
    assert sum(line.startswith("      expected ") for line in lines) >= 10
    plain = succeeds(*asked, "--json").json
    assert plain["outcome"] == "passed"
    assert all(step["ok"] is True for step in plain["steps"])
    assert plain["statement"]["weight"]["samples"] > 0


def test_received_files_are_verified_against_a_head_without_a_home(
    sent: tuple[Path, Path], used: tuple[int, int], head: str, tmp_path: Path
) -> None:
    proof, bundle = sent
    asked = ("verify", "client", "--round", used[0], "--client", used[1], "--proof", proof)
    nowhere = ("--home", tmp_path)
    assert succeeds(*asked, "--head", head, *nowhere).out.startswith("PROVEN: ")
    found = succeeds("verify", "bundle", bundle, "--head", head, *nowhere)
    assert found.out.startswith(f"PASSED: every check of round {used[0]} ")
    for arguments in (asked, ("verify", "bundle", bundle)):
        nothing = cmfl(*arguments, *nowhere)
        assert nothing.code == 3
        assert "no head and no contract is trusted" in nothing.out
        other = cmfl(*arguments, *nowhere, "--head", "0x" + "00" * 32)
        assert other.code == 3


def test_what_somebody_sent_is_checked_against_the_homes_own_contract(
    home: Path, sent: tuple[Path, Path], used: tuple[int, int]
) -> None:
    proof, bundle = sent
    asked = ("verify", "client", "--round", used[0], "--client", used[1], "--proof", proof)
    assert succeeds(*asked, "--home", home).out.startswith("PROVEN: ")
    assert succeeds("verify", "bundle", bundle, "--home", home).out.startswith("PASSED: ")


def test_a_changed_proof_is_contradicted_by_name_and_exit_code(
    sent: tuple[Path, Path], used: tuple[int, int], head: str, tmp_path: Path
) -> None:
    plain: dict[str, Any] = json.loads(sent[0].read_text())
    plain["decision"]["model"] = "0x" + "11" * 32
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(plain))
    asked = ("--round", used[0], "--client", used[1], "--proof", changed, "--home", tmp_path)
    found = cmfl("verify", "client", *asked, "--head", head)
    assert found.code == 1
    assert found.out.startswith("CONTRADICTED: ")
    assert "  NO  decision: " in found.out
    assert "  ok  " not in found.out


@pytest.mark.parametrize("data", [b"", b"[" * 3_000])
def test_invalid_proofs_and_bundles_are_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    nowhere = ("--home", tmp_path)
    client = ("verify", "client", "--round", 1, "--client", 0, "--proof")
    for command in (("verify", "bundle"), client):
        assert str(path) in refusal(*command, path, *nowhere)


def test_missing_files_unopened_rounds_and_unknown_clients_are_refused(
    home: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    assert "gone: No such file" in refusal("verify", "bundle", gone)
    assert "is not a file, but a folder" in refusal("verify", "bundle", tmp_path)
    asked = ("--round", 1, "--client", 0)
    assert "gone: No such file" in refusal("verify", "client", *asked, "--proof", gone)
    for name in ("round", "bundle"):
        assert "gone" in refusal(
            "verify", name, *((1, "--home", gone) if name == "round" else (gone,))
        )
    assert "there is no client 99" in refusal(
        "verify", "client", "--round", 1, "--client", 99, "--home", home
    )
    assert "round 77 has not opened" in refusal("verify", "round", 77, "--home", home)
    out = tmp_path / "no" / "bundle.tar"
    message = refusal("export", "bundle", "--round", 1, "--home", home, "--out", out)
    assert "--out" in message
    assert not out.parent.exists()
    node = ("--rpc-url", "http://127.0.0.1:9", "--chain-id", 1)
    assert "--rpc-url needs --address" in refusal(
        "verify", "client", *asked, "--proof", _proof(home, tmp_path), *node
    )


def _proof(home: Path, folder: Path) -> Path:
    path = folder / "proof.json"
    succeeds("export", "proof", "--round", 1, "--client", 0, "--home", home, "--out", path)
    return path


@pytest.fixture
def earlier(home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "earlier.json"
    succeeds("audit", "--home", home, "--report", path)
    return path


def test_an_audit_builds_on_an_earlier_report_and_says_so(home: Path, earlier: Path) -> None:
    again = earlier.with_name("again.json")
    found = succeeds("audit", "--home", home, "--since", earlier, "--json", "--report", again).json
    assert (found["outcome"], found["whole"], found["rounds"]) == ("passed", False, 5)
    assert (found["built_on"]["rounds"], found["built_on"]["audits"]) == (5, 1)
    text = succeeds("audit", "--home", home, "--since", again).out
    assert "This audit trusts 2 earlier audits for rounds 1 to 5: sha256 of its" in text
    assert text.rstrip().endswith(
        "PASSED: no round has ended since the earlier audit, which this audit trusts"
    )


def test_a_report_that_cannot_be_built_on_is_refused(
    home: Path, copy: Path, earlier: Path, tmp_path: Path
) -> None:
    since = ("audit", "--home", home, "--since")
    assert refusal(*since, tmp_path / "none.json") == (
        f"--since {tmp_path / 'none.json'}: No such file or directory"
    )
    assert refusal(*since, tmp_path).endswith("it is not a file, but a folder, a pipe or a device")
    earlier.write_text("{\x1b[31m", encoding="utf-8")
    assert f"--since {earlier}: the earlier report is not JSON" in refusal(*since, earlier)
    shown = succeeds("rounds", "show", first_decided(copy), "--home", copy, "--json").json
    digest = shown["record"]["digest"].removeprefix("0x")
    (copy / "blobs" / digest[:2] / digest).unlink()
    assert cmfl("audit", "--home", copy, "--report", earlier).code in {1, 3}
    assert "must be passed for an audit to build on it" in refusal(*since, earlier)


def test_several_processes_print_the_same_report(home: Path) -> None:
    one, several = (
        succeeds("audit", "--home", home, "--json", "--jobs", jobs).out for jobs in (1, 3)
    )
    assert json.loads(one) == json.loads(several)
    assert "greater than or equal to 1" in refusal("audit", "--home", home, "--jobs", 0)


def test_foreign_code_fails_step_one_with_a_report(copy: Path, tmp_path: Path) -> None:
    with Target(copy).writer() as chain:
        address = chain.send(None, bytes.fromhex("60016000f3"), 100_000).contract_address
    written = tmp_path / "earlier.json"
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
