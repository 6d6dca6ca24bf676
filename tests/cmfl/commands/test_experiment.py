"""Experiments from the command line: what is listed, run, gone on with, refused and audited."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from clients.experiments.rows import ExperimentRows
from clients.experiments.run import RowStore
from tests.clients.experiments.minis import MINI, TEXT
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

pytestmark = pytest.mark.xdist_group("experiments")

CELL = "CMFL-I__clean__seed200"
OTHER = "FedAvg-n__clean__seed200"
SMALL = (MINI, "--quick")


def run(out: Path, *options: object) -> tuple[object, ...]:
    return ("experiment", "run", *SMALL, "--jobs", 1, "--out", out, *options)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        patched.setattr("cmfl.commands.experiment.draw", noted)
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


def test_a_cell_is_reproducible_and_its_home_can_be_kept(out: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    audit = ("experiment", "audit", *SMALL[:1], CELL, "--quick", "--out", out, "--home", home)
    text = succeeds(*audit).out
    assert f"{CELL} is reproduced: the head and all numbers are the same" in text
    assert "PASSED: all ten steps hold for all 1 rounds" in text
    assert succeeds("rounds", "list", "--home", home, "--json").json
    assert refusal(*audit) == f"--home {home}: exists; name a new folder"


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
    assert "interrupted, and all rows are saved; to continue, run" in result.err
    assert again in result.err
    assert len(seen) == 1
    assert "1 new rows" in succeeds(*command).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "nothing"), "unknown experiment 'nothing'; known are normal, "),
        (("audit", MINI, "nothing"), "experiment mini has no cell 'nothing'; it has 8, such as"),
        (("plot",), "has no rows; create them with cmfl experiment run NAME"),
        (("run", MINI, "--seeds", 0), "Invalid value for '--seeds': Input should be greater than"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, words: tuple[object, ...], said: str
) -> None:
    place = tmp_path / "out"
    assert said in refusal("experiment", *words, "--out", place)
    assert not place.exists()


def test_all_leaves_out_by_name_what_cannot_be_played_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an installed package: without files, and without the kind `theorem`."""
    experiments = ("normal-sent140", "grids-alpha", "theorem")
    monkeypatch.setattr("cmfl.commands.experiment.names", lambda: experiments)
    monkeypatch.setattr("clients.experiments.kinds.THEOREM", "absent.theorem")
    result = cmfl("experiment", "run", "all", "--quick", "--jobs", 1, "--out", tmp_path)
    assert result.code == 0
    assert result.out.startswith("grids-alpha-on-digits: 1 new rows in ")
    assert "scikit-learn's digits replace digits_by_writer.npz" in result.err
    left_out = [line for line in result.err.splitlines() if line.startswith("cmfl: skipped: ")]
    assert [line.split()[3].rstrip(":") for line in left_out] == ["normal-sent140", "theorem"]
    assert left_out[0].endswith("fetch it with: cmfl data fetch all DIR")
    assert "kind 'theorem' needs absent.theorem, which is not installed" in left_out[1]


def test_what_is_in_a_named_folder_has_no_stand_in(tmp_path: Path) -> None:
    said = refusal("experiment", "list", "grids-alpha", "--quick", "--data", tmp_path)
    assert said.startswith("experiment grids-alpha reads digits_by_writer.npz: there is no ")
    said = refusal("experiment", "list", "grids-alpha")
    assert said.endswith("fetch it with: cmfl data fetch digits_by_writer.npz DIR")
