"""`cmfl index`: build, status and drop, as somebody types them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from tests.cmfl.commands.conftest import ROUNDS, SHARED, cmfl, first_decided, refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED


def test_an_index_is_built_shown_and_dropped(home: Path, tmp_path: Path) -> None:
    where = ("--home", home, "--index", tmp_path / "own.sqlite")
    assert "cmfl index build makes it" in refusal("index", "status", *where)
    for _ in range(2):
        assert f"{ROUNDS} rounds up to block" in succeeds("index", "build", *where).out
    (row,) = succeeds("index", "status", *where, "--json").json["deployments"]
    assert (row["rounds"], row["ended"], row["behind"]) == (ROUNDS, ROUNDS, 0)
    assert row["compared"] == {"code": 1, "name": "equal"}
    newest = succeeds("rounds", "show", ROUNDS, "--home", home, "--json").json
    assert row["head"] == newest["head"]
    assert "the contract agrees" in succeeds("index", "status", *where).out
    assert succeeds("index", "drop", *where).out == "The index is removed.\n"
    assert succeeds("index", "drop", *where).out == "There was no index.\n"
    assert not (home / "index.sqlite").exists()


def test_a_digest_is_found_with_the_index_and_without(home: Path, tmp_path: Path) -> None:
    where = ("--home", home, "--index", tmp_path / "own.sqlite")
    number = first_decided(home)
    model = succeeds("rounds", "show", number, "--home", home, "--json").json["model"]
    alone = succeeds("find", model, "--home", home, "--json").json
    assert {"kind": "model", "round": number, "client": None}.items() <= alone["items"][0].items()
    missing = cmfl("find", model, *where, "--json")
    assert (missing.json, "the index is not used" in missing.err) == (alone, True)
    succeeds("index", "build", *where)
    indexed = succeeds("find", model.upper().replace("0X", ""), *where, "--json")
    assert (indexed.json, indexed.err) == (alone, "")
    assert "model" in succeeds("find", model, *where).out
    assert "is not in this run" in succeeds("find", "5c" * 32, *where).out
    assert "64 hex digits" in refusal("find", "5c", *where)


def test_an_index_that_is_asked_for_must_be_there(home: Path, tmp_path: Path) -> None:
    said = refusal("serve", "--home", home, "--index", tmp_path / "none.sqlite", "--port", 0)
    assert "cmfl index build makes it" in said
    assert "is of 'mysql'" in refusal("serve", "--home", home, "--index", "mysql://x/y")


def test_one_run_is_named_or_refused(home: Path, tmp_path: Path) -> None:
    where = ("--home", home, "--index", tmp_path / "own.sqlite")
    assert "no deployed run 'other'" in refusal("index", "build", *where, "--run", "other")
    assert succeeds("index", "build", *where, "--run", "run").out


def test_a_chain_is_not_dropped_for_an_index(copy: Path) -> None:
    chain = copy / "chain.sqlite"
    said = refusal("index", "drop", "--home", copy, "--index", chain)
    assert "is left as it is" in said
    said = refusal("index", "build", "--home", copy, "--index", chain)
    assert "tables of something else" in said
    with sqlite3.connect(chain) as connection:
        assert connection.execute("SELECT count(*) FROM logs").fetchone()[0]
    connection.close()


def test_wrong_places_are_refused_in_a_sentence(copy: Path) -> None:
    assert "is of 'mysql'" in refusal("index", "status", "--home", copy, "--index", "mysql://x/y")
    (copy / "index.sqlite").write_bytes(b"no database" * 99)
    for command in ("build", "status"):
        assert "run cmfl index rebuild" in refusal("index", command, "--home", copy)
    assert f"{ROUNDS} rounds up to block" in succeeds("index", "rebuild", "--home", copy).out
    assert succeeds("index", "drop", "--home", copy).out == "The index is removed.\n"
