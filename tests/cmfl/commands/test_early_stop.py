"""What the commands say of a run that ended by its early-stop rule, and of rows that do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cmfl.auditing import check_stop
from cmfl.where import Target
from ledger.io.home import Home
from tests.cmfl.commands.conftest import SHARED, settings_of, succeeds

STOPPING = settings_of(
    *("protocol.rounds=5", "early_stop.target=1.0"),
    *("early_stop.patience=1", "early_stop.min_delta=1.0"),
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a run that its rule ended after two rounds; tests take copies."""
    path = tmp_path_factory.mktemp("stopped") / "home"
    played = succeeds("run", "--preset", "smoke", "--home", path, *STOPPING, "--json").json
    assert played["early_stop"].startswith("early_stop ends the run after round 2: accuracy")
    assert (played["rounds_now"], played["round"]) == (2, 3)
    return path


def outcome_with(
    home: Path, copy: Path, change: Any, begins: str = "2 of 5 rounds have ended; "
) -> str:
    """Return the outcome in a copy of a home whose rows were changed."""
    shutil.copytree(home, copy)
    path = Home(copy).run("run").metrics
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in change(rows)))
    check = check_stop(Target(copy))
    assert check is not None
    assert check.sentence.startswith(begins)
    return check.outcome


def test_an_auditor_sees_that_the_rule_ended_the_run(stopped: Path) -> None:
    report = succeeds("audit", "--home", stopped, "--jobs", 1, "--json").json
    assert report["outcome"] == "passed"
    assert report["early_stop"]["outcome"] == "stopped"
    people = succeeds("audit", "--home", stopped, "--jobs", 1).out
    assert people.startswith("early stop, apart from the ten steps: 2 of 5 rounds have ended; by")
    assert (
        "early_stop ends the run after round 2"
        in succeeds("runs", "show", "run", "--home", stopped).out
    )
    shown = succeeds("runs", "show", "run", "--home", stopped, "--json").json["early_stop"]
    assert (shown["round"], shown["reason"], shown["best_round"]) == (2, "patience", 1)


@SHARED
def test_a_run_without_a_rule_has_no_word_of_it(home: Path, report: dict[str, Any]) -> None:
    assert "early_stop" not in report
    assert "early_stop" not in succeeds("runs", "show", "run", "--home", home, "--json").json
    assert check_stop(Target(home)) is None


def test_rows_that_do_not_bear_the_rule_out_are_named(stopped: Path, tmp_path: Path) -> None:
    def better(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [rows[0] | {"accuracy": None}, rows[1]]

    def perfect(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [rows[0] | {"accuracy": 1.0}, rows[1]]

    def other_chain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"head": f"0x{'ab' * 32}"} for row in rows]

    assert outcome_with(stopped, tmp_path / "a", lambda rows: rows) == "stopped"
    assert outcome_with(stopped, tmp_path / "b", better) == "not met"
    assert outcome_with(stopped, tmp_path / "e", perfect) == "passed over"
    assert outcome_with(stopped, tmp_path / "c", other_chain) == "unknown"
    assert outcome_with(stopped, tmp_path / "d", lambda _: []) == "unknown"


def test_a_run_of_all_rounds_may_have_passed_its_rule_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    rule = settings_of("protocol.rounds=2", "early_stop.target=1.0")
    succeeds("run", "--preset", "smoke", "--home", home, *rule)

    def perfect_in(number: int) -> Any:
        return lambda rows: [
            row | {"accuracy": 1.0} if row["round"] == number else row for row in rows
        ]

    every = "all 2 rounds have ended"
    assert outcome_with(home, tmp_path / "a", perfect_in(0), every) == "all rounds"
    assert outcome_with(home, tmp_path / "b", perfect_in(2), every) == "all rounds"
    assert outcome_with(home, tmp_path / "c", lambda _: [], every) == "all rounds"
    passed = outcome_with(home, tmp_path / "d", perfect_in(1), "2 of 2 rounds have ended; by its")
    assert passed == "passed over"
