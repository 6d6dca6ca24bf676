"""Deploying is done once, completed where it was cut off, and never done beside what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.configuration.parsing import lot_warning
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.io.home import Home
from ledger.protocol.types import Beacon
from tests.cmfl.commands.conftest import cmfl, settings_of, succeeds


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
    assert f"continue with: cmfl run --home {tmp_path} --run run --resume" in people
    assert succeeds("run", "--home", tmp_path, "--resume", "--json").json["round"] == 1
    assert succeeds(*arguments, "--json").json == found


def test_an_empty_file_of_a_killed_process_becomes_a_chain(tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").touch()
    succeeds("deploy", "--preset", "smoke", "--home", tmp_path)
    assert blocks(tmp_path) == 2


@pytest.mark.parametrize(
    ("settings", "beacon", "warns"),
    [((), "block", False), (("protocol.strategy=3",), "block", True)],
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
