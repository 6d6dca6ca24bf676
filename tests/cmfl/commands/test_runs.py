"""`cmfl runs`: what runs came to, by the chain and their own files, and side by side."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cmfl.commands.conftest import ROUNDS, SHARED, cmfl, refusal, seed_of, succeeds

pytestmark = SHARED


def rows_of(home: Path, name: str = "run") -> list[dict[str, Any]]:
    text = (home / "runs" / name / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def write_rows(home: Path, rows: list[dict[str, Any]], name: str = "run") -> None:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (home / "runs" / name / "metrics.jsonl").write_text(text)


@pytest.fixture
def two(copy: Path) -> Path:
    """Return a home with a second run, on the memory ledger, which attackers have taken over."""
    folder = copy / "runs" / "attacked"
    shutil.copytree(copy / "runs" / "run", folder)
    for name in ("deployment.json", "votes.sqlite"):
        (folder / name).unlink()
    text = (folder / "config.toml").read_text().replace('ledger = "chain"', 'ledger = "memory"')
    (folder / "config.toml").write_text(text.replace(f"seed = {seed_of(copy)}", "seed = 99", 1))
    rows = rows_of(copy)
    for row in rows:
        row |= {"accuracy": 0.05, "malicious_accepted": len(row["accepted"]) // 2}
    write_rows(copy, rows, "attacked")
    return copy


def test_a_run_is_listed_with_what_its_rows_come_to(home: Path) -> None:
    (row,) = succeeds("runs", "list", "--home", home, "--json").json
    rows = rows_of(home)
    assert list(row) == [
        *("run", "ledger", "rounds", "of", "accuracy", "floor", "accepted_attackers"),
        *("head", "configuration", "unread"),
    ]
    assert (row["run"], row["ledger"], row["rounds"], row["of"]) == ("run", "chain", ROUNDS, ROUNDS)
    assert (row["accuracy"], row["floor"]) == (rows[-1]["accuracy"], rows[-1]["floor"])
    assert row["accepted_attackers"] == 0
    # What is claimed of the ledger can be looked up there.
    assert row["head"] == succeeds("run", "--home", home, "--resume", "--json").json["head"]
    manifest = json.loads((home / "runs" / "run" / "deployment.json").read_text())
    assert row["configuration"] == manifest["configuration"]
    people = succeeds("runs", "list", "--home", home).out
    assert f"{ROUNDS}/{ROUNDS}" in people
    assert "claimed, not proven" in people


def test_a_run_is_shown_with_its_settings(home: Path) -> None:
    found = succeeds("runs", "show", "run", "--home", home, "--json").json
    (row,) = succeeds("runs", "list", "--home", home, "--json").json
    settings, chain = found.pop("settings"), found.pop("chain")
    assert found == row
    head = row["head"]
    assert chain == {"outcome": "matches", "round": ROUNDS, "head": head, "claimed": head}
    assert (settings["protocol.clients"], settings["malice.members.silent"]) == ("14", "2")
    assert settings["data.name"] == '"digits"'
    people = succeeds("runs", "show", "run", "--home", home).out
    assert f"audit --home {home} --run run proves the decisions" in people
    assert "malice.members.silent" in people


def test_a_head_unknown_to_the_chain_is_reported_loudly(copy: Path) -> None:
    show = ("runs", "show", "run", "--home", copy)
    rows = rows_of(copy)
    true, forged = rows[-1]["head"], f"0x{'5c' * 32}"
    write_rows(copy, [*rows[:-1], rows[-1] | {"head": forged}])
    result = cmfl(*show)
    assert result.code == 1
    assert f"WARNING: run claims head {forged} after round {ROUNDS}" in result.err
    assert f"and the chain has {true}" in result.err
    result = cmfl(*show, "--json")
    assert (result.code, result.json["head"]) == (1, true), "the chain's, not the files'"
    differs = {"outcome": "differs", "round": ROUNDS, "head": true, "claimed": forged}
    assert result.json["chain"] == differs

    write_rows(copy, [*rows, rows[-1] | {"round": ROUNDS + 1, "head": forged}])
    result = cmfl(*show, "--json")
    assert (result.code, result.json["chain"]["outcome"]) == (1, "missing")
    assert "on the chain that round has not ended: " in result.err

    write_rows(copy, rows[:-1])
    assert succeeds(*show, "--json").json["chain"]["outcome"] == "matches", "a round not yet noted"
    write_rows(copy, [])
    assert succeeds(*show, "--json").json["chain"]["outcome"] == "unclaimed"


def test_a_chain_that_is_not_here_is_not_asked(two: Path) -> None:
    shown = succeeds("runs", "show", "attacked", "--home", two)
    assert "attacked: it ran on the memory ledger, so no chain has its head" in shown.out
    (two / "chain.sqlite").unlink()
    found = succeeds("runs", "show", "run", "--home", two, "--json").json
    claimed = rows_of(two)[-1]["head"]
    unasked = {"outcome": "not_asked", "round": ROUNDS, "head": None, "claimed": claimed}
    assert found["chain"] == unasked


def test_a_run_below_its_floor_is_pointed_out(two: Path) -> None:
    sentence = "WARNING: attacked ends below its floor: always answering the commonest class is"
    assert sentence in succeeds("runs", "list", "--home", two).out
    assert sentence in succeeds("runs", "show", "attacked", "--home", two).out
    assert "WARNING" not in succeeds("runs", "show", "run", "--home", two).out


def test_the_last_lines_of_a_run_can_be_pasted(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    settings = ("--preset", "smoke", "--rounds", 1, "--home", home, "--run", "mine")
    out = cmfl("run", *settings).out
    assert f"results are in {home / 'runs' / 'mine'}\n" in out
    commands = [line.partition(": ")[2] for line in out.splitlines() if " with: " in line]
    words = [shlex.split(command)[1:] for command in commands]
    assert [command[0] for command in words] == ["runs", "audit"]
    for command in words:
        succeeds(*command)


def test_a_started_or_running_run_is_listed(two: Path) -> None:
    metrics = two / "runs" / "attacked" / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-20])
    rows = {row["run"]: row for row in succeeds("runs", "list", "--home", two, "--json").json}
    assert rows["attacked"]["rounds"] == ROUNDS - 1
    metrics.unlink()
    rows = {row["run"]: row for row in succeeds("runs", "list", "--home", two, "--json").json}
    assert rows["attacked"]["rounds"] == 0
    assert rows["attacked"]["accuracy"] is rows["attacked"]["head"] is None
    people = succeeds("runs", "show", "attacked", "--home", two).out
    assert "attacked: no accuracy was measured" in people


def test_a_run_with_doubled_rows_is_shown_and_reported(copy: Path) -> None:
    rows = rows_of(copy)
    expected = succeeds("runs", "show", "run", "--home", copy, "--json").json
    write_rows(copy, [*rows, rows[1]])
    for command in (("list",), ("show", "run")):
        found = cmfl("runs", *command, "--home", copy, "--json")
        assert found.code == 0
        assert "metrics.jsonl: more than one row of round 2; only the first" in found.err
        if command[0] == "show":
            assert found.json == expected


def test_a_damaged_run_is_named_and_the_others_are_listed(two: Path) -> None:
    metrics = two / "runs" / "attacked" / "metrics.jsonl"
    metrics.write_text("{}\n")
    result = cmfl("runs", "list", "--home", two, "--json")
    assert result.code == 2
    assert result.err.startswith(f"cmfl: {metrics}: line 1: ")
    attacked, sound = result.json
    assert attacked == dict.fromkeys(sound) | {"run": "attacked"}
    assert sound["rounds"] == ROUNDS
    assert f"{metrics}: line 1" in refusal("runs", "show", "attacked", "--home", two)


def test_runs_that_are_not_there_are_refused(home: Path, tmp_path: Path) -> None:
    assert refusal("runs", "list", "--home", tmp_path).startswith(f"there is no run in {tmp_path}")
    assert refusal("runs", "show", "other", "--home", home).endswith("there are run")
    assert "letters, digits" in refusal("runs", "show", "../run", "--home", home)
