"""Each command on a real home: what people read, what programs parse, and the exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmfl.commands.console import plain
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.types import DROPOUTS, REFUSALS, DropoutReason, RefusalReason
from tests.cmfl.commands.conftest import (
    ROUNDS,
    SETTINGS,
    SHARED,
    cmfl,
    first_decided,
    refusal,
    seed_of,
    settings_of,
    succeeds,
)

pytestmark = SHARED

DIGEST = re.compile(r"0x[0-9a-f]{64}")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def test_run_ends_with_the_head_for_people_and_for_programs(tmp_path: Path) -> None:
    # A record holds signatures, which name the chain: heads are equal on chains of one id.
    options = ["--rounds", 1, "--chain-id", 7, *settings_of(*SETTINGS)]
    arguments = ["run", "--preset", "smoke", *options]
    people = succeeds(*arguments, "--home", tmp_path / "a").out
    found = succeeds(*arguments, "--home", tmp_path / "b", "--json").json
    assert list(found) == ["run", "address", "round", "rounds_now", "head", "last"]
    assert (found["run"], found["round"], found["rounds_now"]) == ("run", 1, 1)
    assert DIGEST.fullmatch(found["head"])
    assert ADDRESS.fullmatch(found["address"])
    assert f"contract {found['address']}, head {found['head']}" in people
    assert found["last"]["round"] == 1
    assert 0 <= found["last"]["accuracy"] <= 1


def test_a_finished_run_is_resumed_without_a_round(copy: Path) -> None:
    assert "run had already ended with round 5" in succeeds("run", "--home", copy, "--resume").out
    found = succeeds("run", "--home", copy, "--resume", "--json").json
    assert (found["round"], found["rounds_now"], found["last"]) == (ROUNDS, 0, None)


def test_wrong_filters_of_rounds_are_refused(home: Path) -> None:
    for wrong, said in (
        (("--role", "served"), "--role needs --client"),
        (("--client", 14), "client 14 is not registered; there are 14"),
        (("--cursor", "AQAA"), "it was cut or changed"),
    ):
        assert refusal("rounds", "list", "--home", home, *wrong) == said


def test_reasons_are_codes_in_data_and_words_in_text(home: Path) -> None:
    dropouts, refused = set(), set()
    for number in range(1, ROUNDS + 1):
        found = succeeds("rounds", "show", number, "--home", home, "--json").json["parts"]
        people = succeeds("rounds", "show", number, "--home", home).out
        for entry in (*found["updates"], *found["committee"]):
            if entry["reason"] is not None and found["aggregation"]["model"] is not None:
                dropouts.add((entry["reason"]["code"], entry["reason"]["name"]))
                words = DROPOUTS[DropoutReason(entry["reason"]["code"])]
                assert f"dropout         client {entry['client']}: {words}\n" in people
        for member in found["committee"]:
            for one in member["refused"]:
                refused.add((one["reason"]["code"], one["reason"]["name"]))
                words = REFUSALS[RefusalReason(one["reason"]["code"])]
                assert f"refused_scores  client {member['client']}: {words}" in people
                assert f"{words} (client {one['named']})\n" in people
    assert (3, "payload_malformed") in dropouts
    assert refused == {(6, "false_distance")}


def test_a_round_without_its_record_is_shown_from_the_chain(copy: Path) -> None:
    number = first_decided(copy)
    before = succeeds("rounds", "show", number, "--home", copy, "--json").json
    digest = before["record"]["digest"].removeprefix("0x")
    (copy / "blobs" / digest[:2] / digest).unlink()
    after = succeeds("rounds", "show", number, "--home", copy, "--json").json
    assert after["record"] == before["record"] | {"available": False}
    for one, was in zip(after["parts"]["updates"], before["parts"]["updates"], strict=True):
        assert one | {"payload": was["payload"], "reason": was["reason"]} == was
        assert one["payload"] is None
    assert {member["scores"] for member in after["parts"]["committee"]} == {"unknown"}
    assert after["parts"]["votes"] == before["parts"]["votes"]
    assert "record is missing" in succeeds("rounds", "explain", number, "--home", copy).out
    listed = succeeds("clients", "list", "--home", copy).out
    assert "The records of 1 rounds are missing" in listed


def test_audit_passes_and_writes_its_report(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    found = succeeds("audit", "--home", home, "--json", "--report", path).json
    assert found["outcome"] == "passed"
    assert [step["number"] for step in found["steps"]] == list(range(1, 11))
    assert {step["outcome"] for step in found["steps"]} == {"passed"}
    assert json.loads(path.read_text(encoding="utf-8")) == found
    assert "PASSED: all ten steps hold for all 5 rounds" in succeeds("audit", "--home", home).out


def test_doctor_checks_installation_and_home(home: Path, tmp_path: Path) -> None:
    found = succeeds("doctor", "--home", home, "--json").json
    assert [row["check"] for row in found] == [
        "python",
        "signatures",
        "contract artefact",
        "distances",
        "torch",
        "environment class",
        "port",
        "disk",
        "chain",
        "run run",
        "blobs",
        "vote journals",
    ]
    (journals,) = (row["found"] for row in found if row["check"] == "vote journals")
    assert re.fullmatch(r"run: [1-9][0-9]* statements", journals)
    assert all(set(row) == {"check", "ok", "found"} and row["ok"] for row in found)
    assert "none yet in" in succeeds("doctor", "--home", tmp_path / "none").out
    assert not (tmp_path / "none").exists()


def failing(home: Path, *options: object) -> dict[str, str]:
    result = cmfl("doctor", "--home", home, *options, "--json")
    assert (result.code, result.err) == (1, "")
    people = cmfl("doctor", "--home", home, *options).out
    wrong = {row["check"]: str(row["found"]) for row in result.json if not row["ok"]}
    assert [line[5:23].rstrip() for line in people.splitlines() if line[:4] == "FAIL"] == [
        plain(name) for name in wrong
    ]
    return wrong


def test_doctor_fails_on_a_damaged_chain(copy: Path) -> None:
    (copy / "chain.sqlite").write_bytes(b"no chain at all" * 1000)
    wrong = failing(copy)
    assert list(wrong) == ["chain", "run run"]
    assert wrong["chain"].endswith("chain.sqlite: file is not a database")


def test_doctor_fails_on_a_chain_that_was_rolled_back(copy: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.sqlite"
    shutil.copy(copy / "chain.sqlite", older)
    with EmbeddedChain.open(copy / "chain.sqlite") as chain:
        chain.mine(1)
        newest = chain.head()
    for path in copy.glob("chain.sqlite-*"):
        path.unlink()
    shutil.copy(older, copy / "chain.sqlite")
    wrong = failing(copy)
    assert list(wrong) == ["chain"]
    assert f"lacks block {newest.number}, 0x{newest.hash.hex()}" in wrong["chain"]
    assert wrong["chain"].endswith("cmfl run --resume --accept-rollback")


def test_doctor_misses_a_chain_that_its_home_has_acknowledged(copy: Path) -> None:
    for path in copy.glob("chain.sqlite*"):
        if path.suffix != ".head":
            path.unlink()
    wrong = failing(copy)
    assert list(wrong) == ["chain", "run run"]
    assert re.search(r"chain\.sqlite is missing, .* block [0-9]+, 0x", wrong["chain"])


def test_doctor_says_what_a_writer_would_refuse(copy: Path) -> None:
    os.link(copy / "chain.sqlite", copy / "other.sqlite")
    assert "(hard links)" in failing(copy)["chain"]
    (copy / "other.sqlite").unlink()
    (copy / "runs" / "run" / "deployment.json").unlink()
    assert "is missing, but run 'run' was played" in failing(copy)["run run"]


def test_doctor_misses_the_model_of_the_newest_round(copy: Path) -> None:
    for blob in (copy / "blobs").glob("*/*"):
        blob.unlink()
    assert re.match(r"blob [0-9a-f]{64}, the model of round", failing(copy)["run run"])


def test_doctor_finds_block_damage_only_by_replaying_it(copy: Path) -> None:
    before = succeeds("doctor", "--home", copy, "--deep").out
    assert "every block re-executed" in before
    assert re.search(r"^ok   blobs +[0-9]+ blobs, [0-9.]+ MB, each hashed$", before, re.MULTILINE)
    with closing(sqlite3.connect(copy / "chain.sqlite")) as file, file:
        file.execute("DELETE FROM logs WHERE id = (SELECT min(id) FROM logs)")
    succeeds("doctor", "--home", copy)
    assert list(failing(copy, "--deep")) == ["chain"]


def test_doctor_counts_blobs_and_names_the_damaged(copy: Path) -> None:
    blobs = sorted((copy / "blobs").glob("*/*"))
    (blobs[0].parent / ".writing-1").touch()
    (blobs[0].parent / "notes.txt").touch()
    found = succeeds("doctor", "--home", copy, "--json").json
    (row,) = (row["found"] for row in found if row["check"] == "blobs")
    assert row.startswith(f"{len(blobs)} blobs, ")
    assert row.endswith(
        "; 1 unfinished files, which the next writer removes; 1 other files, which are ignored"
    )
    blobs[1].write_bytes(b"other bytes")
    succeeds("doctor", "--home", copy)
    for path in copy.glob("chain.sqlite*"):
        path.unlink()  # else every block would be run again
    assert failing(copy, "--deep")["blobs"].startswith(f"blob {blobs[1].name} is damaged")
    blobs[2].write_bytes(b"")
    assert failing(copy)["blobs"].startswith(f"blob {blobs[2].name} is empty; restore the blob")


def test_doctor_looks_at_every_run(copy: Path) -> None:
    (copy / "runs" / "begun").mkdir()
    rows = {row["check"]: row for row in succeeds("doctor", "--home", copy, "--json").json}
    assert rows["run begun"]["found"].startswith("has no contract yet: cmfl run --resume")
    assert re.fullmatch(
        r"contract 0x[0-9a-fA-F]{40}, finished after round 5 of 5", rows["run run"]["found"]
    )
    (copy / "runs" / "[b]a\nb").mkdir()
    assert list(failing(copy)) == ["run [b]a\nb"]


def test_doctor_fails_on_a_taken_port_that_is_asked_for(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        succeeds("doctor", "--home", tmp_path, "--port", port)
        taken.listen()
        assert failing(tmp_path, "--port", port) == {
            "port": f"{port} is in use; give cmfl serve another port with --port"
        }


def test_doctor_fails_on_a_damaged_vote_journal(copy: Path) -> None:
    (copy / "runs" / "run" / "votes.sqlite").write_bytes(b"no journal at all" * 1000)
    wrong = failing(copy)
    assert list(wrong) == ["vote journals"]
    assert wrong["vote journals"].endswith("votes.sqlite: file is not a database")
    # Who only reads signs nothing.
    succeeds("audit", "--home", copy)


def test_a_contract_is_named_by_address_without_a_manifest(copy: Path) -> None:
    address = succeeds("run", "--home", copy, "--resume", "--json").json["address"]
    (copy / "runs" / "run" / "deployment.json").unlink()
    found = succeeds("rounds", "list", "--home", copy, "--address", address, "--json").json
    assert len(found["rounds"]) == ROUNDS


def test_a_read_only_command_leaves_the_home_as_it_is(home: Path) -> None:
    before = contents(home)
    succeeds("rounds", "list", "--home", home)
    succeeds("audit", "--home", home)
    assert contents(home) == before


def contents(home: Path) -> dict[str, bytes]:
    # SQLite's own side files come and go with every reader.
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.startswith("chain.sqlite-")
    }


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
    assert f"audit --home {home} --run run verifies the decisions" in people
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
    assert "that round has not ended on the chain: " in result.err

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
    sentence = "WARNING: attacked ends below its floor, the accuracy of always predicting the"
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
    assert refusal("runs", "show", "other", "--home", home).endswith("must be one of run")
    assert "64 letters" in refusal("runs", "show", "../run", "--home", home)
