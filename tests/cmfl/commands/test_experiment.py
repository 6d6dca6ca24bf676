"""Experiments from the command line: what is listed, run, gone on with, refused and audited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from clients.experiments import catalogue
from clients.experiments.execution.row_store import RowStore
from tests.clients.experiments.minis import MINI, TEXT
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clients.experiments.rows import ExperimentRows

pytestmark = pytest.mark.xdist_group("experiments")

CELL = "CMFL-I__clean__seed200"
OTHER = "FedAvg-n__clean__seed200"
SMALL = (MINI, "--quick")


def run(out: Path, *options: object) -> tuple[object, ...]:
    return ("experiment", "run", *SMALL, "--jobs", 1, "--out", out, *options)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the rows of the small version; nobody adds to them."""
    folder = tmp_path_factory.mktemp("experiments")
    result = succeeds(*run(folder))
    path = folder / "quick" / "mini.jsonl"
    passed = "1 of 1 runs on a chain pass their audit"
    assert result.out == f"mini: 2 new rows in {path}; {passed}\n"
    assert len(path.read_bytes().splitlines()) == 2
    return folder


def test_cells_are_listed_with_what_they_have_come_to(out: Path) -> None:
    listed = succeeds("experiment", "list", *SMALL, "--out", out, "--json").json
    assert [one["cell"] for one in listed] == [CELL, OTHER]
    assert listed[0]["head"].startswith("0x")
    assert listed[1]["head"] is None
    assert all(0 <= one["final"] <= 1 for one in listed)
    assert all(one["current"] for one in listed)
    table = succeeds("experiment", "list", *SMALL, "--out", out, "--csv").out.splitlines()
    assert table[0] == "cell,final,head,current"
    assert [line.split(",")[0] for line in table[1:]] == [CELL, OTHER]
    text = succeeds("experiment", "list", *SMALL, "--out", out, "--seeds", 2).out
    assert "Mini: 2 of 4 cells have their row" in text


def test_rows_of_another_version_are_listed_as_such(out: Path, tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    rows = [json.loads(line) for line in (out / "quick" / "mini.jsonl").read_text().splitlines()]
    rows[0]["digest"] = f"0x{'11' * 32}"
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "quick" / "mini.jsonl").write_text(text)
    words = ("experiment", "list", *SMALL, "--out", tmp_path)
    assert [one["current"] for one in succeeds(*words, "--json").json] == [False, True]
    people = succeeds(*words).out
    assert "Mini: 1 of 2 cells have their row" in people
    assert f"1 rows in {tmp_path}/quick/mini.jsonl are of another version of this" in people
    # Of more seeds there are cells without a row, and no row is of another version.
    more = succeeds("experiment", "list", *SMALL, "--out", out, "--seeds", 2)
    assert [one["current"] for one in succeeds(*words, "--seeds", 2, "--json").json].count(
        None
    ) == 2
    assert "another version" not in more.out


def test_own_rows_are_drawn_and_reported(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the path of their TOML, by their name, and among all."""
    figures = tmp_path / "figures"

    def plot(name: object) -> str:
        return succeeds("experiment", "plot", name, "--quick", "--out", out, "--to", figures).out

    asked: list[object] = []

    def noted(rows: Mapping[str, ExperimentRows], _: Path) -> list[Path]:
        assert [*rows] == ["mini"]
        asked.append(rows["mini"].cells)
        return []

    with monkeypatch.context() as patched:
        patched.setattr("clients.experiments.figures.draw", noted)
        for name in (MINI, "mini", "all"):
            assert plot(name) == f"0 files in {figures}\n"
            report = succeeds("experiment", "report", name, "--quick", "--out", out).out
            assert "|  | CMFL-I | FedAvg (n) |" in report.splitlines()
    assert asked[0] == asked[1] == asked[2] != ()
    assert plot(MINI) == f"4 files in {figures}\n"
    assert sorted(path.name for path in figures.glob("*.svg")) == [
        "mini-curves.svg",
        "mini-table.svg",
    ]


def test_experiments_are_listed_by_their_number() -> None:
    listed = succeeds("experiment", "list", "--json").json
    numbers = [one["number"] for one in listed]
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 2, 3, 4, 5, 6, 7}


def test_a_cell_is_reproducible_and_its_home_can_be_kept(out: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    audit = ("experiment", "audit", *SMALL[:1], CELL, "--quick", "--out", out, "--home", home)
    text = succeeds(*audit).out
    assert f"{CELL} came out again: the same head, and all its numbers" in text
    assert "PASSED: all ten steps hold for all 1 rounds" in text
    assert succeeds("rounds", "list", "--home", home, "--json").json
    assert refusal(*audit) == f"--home {home}: is there already; name a folder to make"


def test_a_row_that_lies_is_a_contradiction(out: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (out / "quick" / "mini.jsonl").read_text().splitlines()]
    rows[0]["accuracy"] = [0.999]
    (tmp_path / "quick").mkdir()
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "quick" / "mini.jsonl").write_text(text)
    result = cmfl("experiment", "audit", MINI, CELL, "--quick", "--out", tmp_path, "--json")
    assert result.code == 1
    assert result.json["outcome"] == "failed"
    assert result.json["differing"][0].startswith("accuracy: [0.999], and now [0.")


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    kept = RowStore.add
    seen: list[object] = []

    def interrupted(store: RowStore, row: object) -> None:
        kept(store, row)  # type: ignore[arg-type]
        seen.append(row)
        raise KeyboardInterrupt

    change = ('name = "CMFL-I"', 'name = "GossipFL"\nkind = "gossip"')
    path = tmp_path / "two.toml"
    path.write_text(TEXT.replace(*change))
    command = ("experiment", "run", path, "--quick", "--jobs", 1, "--out", tmp_path)
    with patch.object(RowStore, "add", interrupted):
        result = cmfl(*command)
    assert result.code == 130
    assert result.out == ""
    again = f"experiment run {path} --jobs 1 --out {tmp_path} --quick"
    assert "interrupted; all rows are saved; continue with:" in result.err
    assert again in result.err
    assert len(seen) == 1
    assert "1 new rows" in succeeds(*command).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "nothing"), "unknown experiment 'nothing'; known are normal, "),
        (("run", "normal"), "experiment normal reads digits_by_writer.npz: say with --data"),
        (("audit", MINI, "nothing"), "experiment mini has no cell 'nothing'; it has 8, such as"),
        (("audit", MINI, CELL), "has no row of cell 'CMFL-I__clean__seed200': nothing to audit"),
        (("plot",), "has no rows of all: make them by experiment run"),
        (("report",), "has no rows of all: make them by experiment run"),
        (("report", "nothing"), "has no rows of nothing: make them by experiment run"),
        (("plot", "none.toml"), "none.toml cannot be read: No such file or directory"),
        (("run", MINI, "--seeds", 0), "Invalid value for '--seeds': Input should be greater than"),
        (("run", MINI, "--jobs", 0), "Invalid value for '--jobs': Input should be greater than"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, words: tuple[object, ...], said: str
) -> None:
    place = tmp_path / "out"
    assert said in refusal("experiment", *words, "--out", place)
    assert not place.exists()


def test_a_cell_that_cannot_exist_stops_all_before_the_first(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    sizes = '"protocol.clients=59", "protocol.active_rate=1", "protocol.committee_rate=0.5"'
    wrong.write_text(TEXT.replace('"protocol.rounds=2"', sizes))
    place = tmp_path / "out"
    said = refusal("experiment", "run", wrong, "--out", place)
    assert said == (
        "experiment wrong: cell CMFL-I, clean: protocol.committee_rate = 0.5: n = 29 trainers are "
        "fewer than C = 30 members; the ranking cannot fill the next committee; "
        "protocol.active_rate = 0.98 fits"
    )
    assert not place.exists()


def test_all_that_find_their_files_are_run_drawn_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = ("robustness-worst", "robustness-worst-tuned", "robustness-worst-writers")
    monkeypatch.setattr(catalogue, "names", lambda: some)
    listed = succeeds("experiment", "list", "--json").json
    assert [row["experiment"] for row in listed] == list(some)
    assert succeeds("experiment", "list", "all", "--json").json == listed
    words = ("all", "--quick", "--out", tmp_path)
    result = cmfl("experiment", "run", *words, "--jobs", 1, "--json")
    assert result.code == 0
    played = [row["experiment"] for row in result.json]
    assert played == [row["experiment"] for row in listed if not row["files"]]
    assert all(row["new"] and not row["failures"] for row in result.json)
    assert {verdict for row in result.json for verdict in row["verdicts"]} == {"passed"}
    assert result.err.count("is left out: it reads") == len(listed) - len(played)
    report = succeeds("experiment", "report", *words).out
    assert all(f": `{name}`" in report for name in played)
    succeeds("experiment", "plot", *words, "--to", tmp_path / "figures")
    drawn = {path.name for path in (tmp_path / "figures").glob("*.svg")}
    assert drawn == {f"{name}-heat.svg" for name in played}
