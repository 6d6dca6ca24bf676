"""`cmfl contract`: the interface, and whether a contract has the code that vyper gives."""

from __future__ import annotations

import json
from pathlib import Path

from cmfl.where import Target
from contracts.build import ARTIFACT
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
