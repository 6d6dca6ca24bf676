"""A home with a run on the memory ledger: what commands say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import cmfl as face
from cmfl.where import Target
from tests.cmfl.commands.conftest import cmfl, refusal, settings_of, succeeds

SMALLEST = ("run", "--preset", "smoke", "--rounds", 1, "--json")
CHAIN_ID = 77


def test_a_memory_run_has_the_head_of_its_named_chain(tmp_path: Path) -> None:
    named = (*SMALLEST, "--chain-id", CHAIN_ID, "--home")
    chain = succeeds(*named, tmp_path / "chain").json
    memory = succeeds(*named, tmp_path / "memory", *settings_of("machine.ledger=memory")).json
    assert memory["head"] == chain["head"]


@pytest.mark.parametrize("preset", ["smoke", "robust"])
def test_equal_commands_have_equal_heads(preset: str, tmp_path: Path) -> None:
    """In new homes, on any ledger, by the command and by Python; on one kind of processor."""
    command = ("run", "--preset", preset, "--rounds", 2, "--json", "--home")
    first = succeeds(*command, tmp_path / "a").json["head"]
    assert succeeds(*command, tmp_path / "b").json["head"] == first
    in_memory = settings_of("machine.ledger=memory")
    assert succeeds(*command, tmp_path / "c", *in_memory).json["head"] == first
    assert face.run(preset, rounds=2, home=tmp_path / "d", progress=False).head == first


def test_the_chain_of_other_settings_has_another_id(tmp_path: Path) -> None:
    for seed in (0, 1):
        succeeds(*SMALLEST, "--home", tmp_path / str(seed), *settings_of(f"seed={seed}"))
    assert _id_of(tmp_path / "0") != _id_of(tmp_path / "1")


def test_a_chain_for_owners_has_a_random_id(tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b", "c"):
        with Target(tmp_path / name).writer() as chain:
            ids.add(chain.chain_id)
    assert len(ids) == 3  # two of three are equal once in a million times


def _id_of(home: Path) -> int:
    with Target(home).own_reader() as chain:
        return chain.chain_id


def test_a_home_without_a_chain_says_its_runs_had_none(tmp_path: Path) -> None:
    succeeds(*SMALLEST, "--home", tmp_path, *settings_of("machine.ledger=memory"))
    for command in (("rounds", "list"), ("clients", "list"), ("audit",)):
        said = refusal(*command, "--home", tmp_path)
        assert said.startswith(f"{tmp_path} has no chain, because run ran on the memory ledger")
    # A run that was on a chain is looked for there.
    (tmp_path / "runs" / "run" / "config.toml").write_text("[machine]\nledger = 'chain'\n")
    assert "no such chain file" in refusal("rounds", "list", "--home", tmp_path)


def test_a_home_on_a_node_says_how_to_name_it(tmp_path: Path) -> None:
    manifest = tmp_path / "runs" / "fed" / "deployment.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    for command in (("rounds", "list"), ("blobs", "list", "--round", "1"), ("blobs", "serve")):
        said = refusal(*command, "--home", tmp_path)
        assert said.startswith(f"there is no chain at {tmp_path / 'chain.sqlite'}; check ")
        assert said.endswith("fed is on a node, give --rpc-url and --chain-id")


RUN = ("run", "--preset", "smoke", "--rounds", 1, "--set", "machine.ledger=memory", "--json")
ATTACK = ("--set", "malice.attack=ipm", "--set", "malice.malicious_rate=0.25")


def test_an_attacked_run_outside_the_regime_is_warned_of_once(tmp_path: Path) -> None:
    result = cmfl(*RUN, *ATTACK, "--home", tmp_path)
    assert result.code == 0
    assert result.err.count("outside the tested settings: a committee of 4") == 1
    assert result.json["run"] == "run"  # standard output is JSON alone


def test_a_run_that_nobody_attacks_is_not_warned_of(tmp_path: Path) -> None:
    succeeds(*RUN, "--home", tmp_path)  # quietly
