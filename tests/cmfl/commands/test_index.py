"""`cmfl index`: build, status and drop, as somebody types them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from tests.cmfl.commands.conftest import ROUNDS, SHARED, refusal, succeeds

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
