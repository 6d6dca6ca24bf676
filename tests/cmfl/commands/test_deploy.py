"""Deploying is done once, completed where it was cut off, and never done beside what is there."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.configuration.parsing import lot_warning
from clients.runs.preparation import prepared
from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.io.home import Home
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import Beacon
from ledger.storage.blobs import FolderBlobs
from tests.clients.played import Cut, CuttingFile
from tests.cmfl.commands.conftest import cmfl, refusal, settings_of, succeeds

if TYPE_CHECKING:
    from pathlib import Path

# 300 clients are registered in two transactions: 256 and 44.
MANY = ("protocol.clients=300", "protocol.active_rate=0.04", "protocol.rounds=1")


def files(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "runs" / "run").iterdir()}


def blocks(home: Path) -> int:
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        return chain.head().number


def test_deploying_again_changes_nothing(tmp_path: Path) -> None:
    arguments = ["deploy", "--preset", "smoke", "--set", "protocol.rounds=1", "--home", tmp_path]
    people = succeeds(*arguments).out
    before = files(tmp_path)
    found = succeeds(*arguments, "--json").json
    assert found == json.loads(before["deployment.json"])
    assert set(before) == {"config.toml", "deployment.json", "run.lock"}
    assert (files(tmp_path), blocks(tmp_path)) == (before, 2)
    assert people.splitlines()[0] == f"contract {found['address']} on chain {found['chain_id']}"
    assert f"go on with: cmfl run --home {tmp_path} --run run --resume" in people
    assert succeeds("run", "--home", tmp_path, "--resume", "--json").json["round"] == 1
    assert succeeds(*arguments, "--json").json == found


def test_another_configuration_under_the_same_name_is_refused(tmp_path: Path) -> None:
    arguments = ["deploy", "--preset", "smoke", "--home", tmp_path]
    succeeds(*arguments)
    before = files(tmp_path)
    for setting in ("seed=1", "protocol.rounds=6", "training.learning_rate=0.25"):
        assert "is of another configuration" in refusal(*arguments, *settings_of(setting))
        assert (files(tmp_path), blocks(tmp_path)) == (before, 2)
    succeeds(*arguments, "--run", "other", *settings_of("seed=1"))


def test_a_manifest_of_another_chain_is_refused_and_nothing_deployed(tmp_path: Path) -> None:
    arguments = ["deploy", "--preset", "smoke", "--home"]
    succeeds(*arguments, tmp_path / "one")
    manifest = (tmp_path / "one" / "runs" / "run" / "deployment.json").read_bytes()
    (tmp_path / "two").mkdir()
    # Another time of block 0 makes it another chain, even under the same id.
    same_id = json.loads(manifest)["chain_id"]
    path = tmp_path / "two" / "chain.sqlite"
    EmbeddedChain.create(path, chain_id=same_id, clock=lambda: 1.0).close()
    succeeds(*arguments, tmp_path / "two", "--run", "other")
    target = tmp_path / "two" / "runs" / "run"
    shutil.copytree(tmp_path / "one" / "runs" / "run", target)
    assert "with genesis" in refusal(*arguments, tmp_path / "two")
    assert blocks(tmp_path / "two") == 2
    (target / "deployment.json").write_bytes(manifest[:50])
    assert "is not JSON" in refusal(*arguments, tmp_path / "two")


@pytest.mark.parametrize(("left", "registered"), [(1, 0), (2, 256)])
def test_a_deployment_cut_off_between_its_transactions_is_completed(
    tmp_path: Path, left: int, registered: int
) -> None:
    configuration = load("smoke", settings=(*MANY, "protocol.beacon=block"))
    with CuttingFile.create(tmp_path / "chain.sqlite") as chain:
        assert isinstance(chain, CuttingFile)
        blobs = FolderBlobs(tmp_path / "blobs")
        chain.left, chain.after = left, False
        with pytest.raises(Cut), prepared(tmp_path, "run", configuration, chain, blobs):
            pass
        chain.left = None
        manifest = json.loads((tmp_path / "runs" / "run" / "deployment.json").read_bytes())
        ledger = LedgerWriter(chain, manifest["address"], manifest["block"])
        assert ledger.state().registered == registered
    assert succeeds("clients", "list", "--home", tmp_path, "--json").out.count('"address"') == (
        registered
    )
    found = succeeds(
        "deploy", "--preset", "smoke", *settings_of(*MANY), "--home", tmp_path, "--json"
    )
    assert found.json == manifest
    assert blocks(tmp_path) == 3
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as reader:
        state = CommitteeLedger(reader, manifest["address"], manifest["block"]).state()
        assert (state.registered, state.stage, state.round) == (300, LedgerStage.OPEN, 1)
    assert succeeds("run", "--home", tmp_path, "--resume", "--json").json["round"] == 1


def test_an_unfinished_deployment_has_no_round_to_show_yet(tmp_path: Path) -> None:
    with CuttingFile.create(tmp_path / "chain.sqlite") as chain:
        assert isinstance(chain, CuttingFile)
        chain.left, chain.after = 2, False
        configuration, blobs = load("smoke", settings=MANY), FolderBlobs(tmp_path / "blobs")
        with pytest.raises(Cut), prepared(tmp_path, "run", configuration, chain, blobs):
            pass
    assert succeeds("rounds", "list", "--home", tmp_path, "--json").json["rounds"] == []
    assert "round 1 has not opened" in refusal("rounds", "show", 1, "--home", tmp_path)


def test_an_empty_file_of_a_killed_process_becomes_a_chain(tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").touch()
    succeeds("deploy", "--preset", "smoke", "--home", tmp_path)
    assert blocks(tmp_path) == 2


@pytest.mark.parametrize(
    ("settings", "beacon", "warns"),
    [
        ((), "block", False),
        (("protocol.beacon=none",), "none", False),
        (("protocol.strategy=3",), "block", True),
        (("protocol.strategy=3", "protocol.beacon=none"), "none", True),
    ],
)
def test_a_deployment_takes_a_blocks_hash_and_warns_of_a_lot_that_can_be_chosen(
    settings: tuple[str, ...], beacon: str, warns: bool, tmp_path: Path
) -> None:
    done = cmfl("deploy", "--preset", "smoke", *settings_of(*settings), "--home", tmp_path)
    assert done.code == 0
    assert ("next committee" in done.err) == warns
    configuration = load(path=Home(tmp_path).run("run").configuration)
    assert configuration.protocol.beacon.value == beacon


def test_a_lot_is_safe_where_blocks_come_by_themselves() -> None:
    for strategy, beacon, mines_at_once, warns in (
        (1, Beacon.NONE, True, False),
        (3, Beacon.BLOCK, False, False),
        (3, Beacon.BLOCK, True, True),
        (3, Beacon.NONE, False, True),
    ):
        warning = lot_warning(strategy, beacon, mines_at_once=mines_at_once)
        assert (warning is not None) == warns
