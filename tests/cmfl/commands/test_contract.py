"""`cmfl contract`: the interface, and whether a contract has the code that vyper gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cmfl.where import Target
from contracts.build import ARTIFACT, HERE, SOURCES
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest
from ledger.io.home import Home
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds
from tests.support.creations import FLAGS, created_by_factory, planted

pytestmark = SHARED

OTHER_CODE = bytes.fromhex("60016000f3")  # creates a contract of one zero byte


def test_the_abi_is_that_of_the_artefact() -> None:
    assert succeeds("contract", "abi").json == json.loads(ARTIFACT.read_text())["abi"]


def test_a_deployed_contract_has_the_published_code(home: Path) -> None:
    found = succeeds("contract", "verify", "--home", home, "--json").json
    assert found["is_published_code"] is True
    assert found["differing_sources"] == []
    manifest = read_run_manifest(Home(home).run("run"))
    assert (found["address"], found["chain_id"]) == (manifest.address, manifest.chain_id)


def test_people_and_programs_read_the_same_command_and_digest(home: Path) -> None:
    """That the command gives the digest is tested where the contract is compiled."""
    verify = ("contract", "verify", "--home", home)
    printed = succeeds(*verify, "--json").json
    lines = [line.strip() for line in succeeds(*verify).out.splitlines()]
    assert printed["compile"] in lines
    assert any(line.startswith(f"{printed['sha256']} ") for line in lines)


def test_other_code_fails_the_verification(copy: Path) -> None:
    with Target(copy).writer() as chain:
        address = chain.create_contract(OTHER_CODE, 100_000, chain.next_nonce()).contract_address
    found = cmfl("contract", "verify", "--home", copy, "--address", address)
    assert found.code == 1
    assert "does NOT have the published code" in found.out


def test_another_creation_fails_the_verification(copy: Path) -> None:
    run = read_run_manifest(Home(copy).run("run"))
    with Target(copy).writer() as chain:
        deployment = CommitteeLedger(chain, run.address).deployment()
        address = planted(chain, deployment, {FLAGS: 1}, chain.next_nonce()).address
    verify = ("contract", "verify", "--home", copy, "--address", address)
    found = cmfl(*verify, "--json")
    assert (found.code, found.json["is_published_code"]) == (1, False)
    assert "created by other code" in cmfl(*verify).out


def test_the_creation_by_a_factory_is_not_checkable(copy: Path) -> None:
    run = read_run_manifest(Home(copy).run("run"))
    with Target(copy).writer() as chain:
        deployment = CommitteeLedger(chain, run.address).deployment()
        address = created_by_factory(chain, deployment).address
    verify = ("contract", "verify", "--home", copy, "--address", address)
    found = cmfl(*verify, "--json")
    assert (found.code, found.json["is_published_code"]) == (3, True)
    assert "another contract created it" in found.json["unchecked"]
    assert "another contract created it" in cmfl(*verify).out


def test_an_address_without_code_is_refused(home: Path) -> None:
    address = "0x00000000000000000000000000000000000000aa"
    assert "there is no contract at" in refusal(
        "contract", "verify", "--home", home, "--address", address
    )


@pytest.mark.slow
def test_the_compiler_makes_the_deployed_contract_of_its_source(home: Path) -> None:
    pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    printed = cmfl("contract", "source", "--home", home, "--standard-json")
    compiler = Path(sys.executable).with_name("vyper-json")
    ended = subprocess.run(
        [compiler], input=printed.out, capture_output=True, text=True, check=True
    )
    contracts = json.loads(ended.stdout)["contracts"]
    [(file, name)] = [(file, name) for file, made in contracts.items() for name in made]
    code = contracts[file][name]["evm"]
    assert f"name {file}:{name}, compiled with vyper 0.4.3" in printed.err
    arguments = printed.err.rpartition("constructor arguments ")[2].strip()
    with Target(home).reader() as chain:
        ledger = CommitteeLedger(chain, read_run_manifest(Home(home).run("run")).address)
        created, runtime = ledger.creation().input, chain.code(ledger.address)
    assert f"0x{created.hex()}" == code["bytecode"]["object"] + arguments
    assert f"0x{runtime.hex()}".startswith(code["deployedBytecode"]["object"])


def test_what_an_explorer_needs_is_printed_without_the_source_too(home: Path) -> None:
    lines = succeeds("contract", "source", "--home", home).out.splitlines()
    beside = cmfl("contract", "source", "--home", home, "--standard-json").err.splitlines()
    assert [f"cmfl: {line}" for line in lines] == beside
    assert lines[0].startswith(f"contract {read_run_manifest(Home(home).run('run')).address} on")


def test_no_source_is_printed_that_is_not_the_contracts(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Target(copy).writer() as chain:
        address = chain.create_contract(OTHER_CODE, 100_000, chain.next_nonce()).contract_address
    said = refusal("contract", "source", "--home", copy, "--address", address, "--standard-json")
    assert f"the code at {address} is not that of vyper 0.4.3's artefact" in said
    for name in SOURCES:
        (tmp_path / name).write_bytes((HERE / name).read_bytes() + b"\n")
    monkeypatch.setattr("cmfl.commands.chain.HERE", tmp_path)
    said = refusal("contract", "source", "--home", copy)
    assert f"{tmp_path}/" in said
    assert " was changed; reinstall cmfl" in said
