"""The paper's report and figures, from rows; claims name what the definitions have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks.harness import MEASURED, ROWS
from benchmarks.paper import claims
from benchmarks.paper.__main__ import CLAIMS, RESULTS, main, paper_pages
from benchmarks.paper.tables import science_tables
from benchmarks.paper.time_claims import DECENTRALISED
from clients.experiments.definition import definition_named, names
from clients.experiments.plan import missing_files, plan_experiment
from clients.experiments.rows import (
    ChoiceRow,
    ExperimentRows,
    read_experiments,
    read_rows,
    unpack,
)
from clients.experiments.run import digest_of_trials
from tests.clients.experiments.made_up import EVIDENCE, constant

TUNED = "robustness-worst-tuned"
OTHER_PAGES = {"claims", "index", "other-attacks", "speed"}
PUBLISHED = sorted(path.name.removesuffix(".tar.xz") for path in ROWS.glob("*.tar.xz"))
DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    with patch("clients.experiments.rows.read_rows", cache(read_rows)):
        yield


def test_the_pages_have_verdicts_and_every_experiment() -> None:
    cells = tuple(constant("CMFL-I", (0.8, 0.9, 1.0), ledger=EVIDENCE))
    choice = ChoiceRow(
        experiment="normal-sent140",
        method="CMFL-I",
        factor=0.5,
        finals={"0.5": 0.8, "1": 0.7},
        seeds=(100, 101),
        digest="0x00",
    )
    definition = definition_named("normal-sent140")
    rows = {"normal-sent140": ExperimentRows(cells, (), (choice,), definition)}
    pages = paper_pages(rows, ["figures/normal-sent140-curves.svg"])
    assert list(pages) == ["claims.md", "normal-sent140.md"]
    assert "# The paper's claims" in pages["claims.md"]
    text = pages["normal-sent140.md"]
    assert text.startswith("# 1. Normal training, Sentiment140: `normal-sent140`")
    assert "cmfl experiment run normal-sent140 --data DIR" in text
    assert "![normal-sent140-curves](figures/normal-sent140-curves.svg)" in text
    chosen = "CMFL-I | 0.5 (smallest tried) | 0.1 | 2 | 0.5: 0.800, 1: 0.700"
    assert f"| normal-sent140 | {chosen} | 0.005 |" in text


def test_pages_and_figures_are_made_on_the_command_line(tmp_path: Path) -> None:
    shutil.copy(ROWS / "theorem.tar.xz", tmp_path)
    unpack(tmp_path, "theorem")
    main(["pack", "--rows", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["theorem.tar.xz"]
    assert (tmp_path / "theorem.tar.xz").read_bytes() == (ROWS / "theorem.tar.xz").read_bytes()
    figures = tmp_path / "figures"
    main(["plot", "--rows", str(tmp_path), "--to", str(figures)])
    assert sorted(path.name for path in figures.iterdir()) == [
        "theorem-bound.png",
        "theorem-bound.svg",
    ]
    to = ["--to", str(tmp_path), "--figures", str(figures), "--tables", str(tmp_path / "s.json")]
    main(["report", "--rows", str(tmp_path), *to])
    assert "![theorem-bound](figures/theorem-bound.svg)" in (tmp_path / "theorem.md").read_text()


def test_the_published_pages_are_what_the_rows_have() -> None:
    links = [f"figures/{path.name}" for path in sorted((RESULTS / "figures").glob("*.svg"))]
    rows = read_experiments(ROWS)
    pages = {name: (RESULTS / name).read_text("utf-8") for name in paper_pages(rows, links)}
    assert pages == paper_pages(rows, links), "run: benchmarks.paper report"
    published = json.loads((MEASURED / "science.json").read_bytes())
    assert published == science_tables(rows, CLAIMS), "run: benchmarks.paper report"


def test_rates_are_tuned_on_seeds_that_no_result_has() -> None:
    for name, rows in read_experiments(ROWS).items():
        reported = {cell.seed for cell in rows.cells}
        for choice in rows.choices:
            assert reported.isdisjoint(choice.seeds)
            assert name != TUNED or len(choice.seeds) >= 4
            # Not at an end of what was tried: a further rate would have been no better.
            tried = sorted(float(factor) for factor in choice.finals)
            assert name != TUNED or tried[0] < choice.factor < tried[-1]


def test_every_published_experiment_is_defined() -> None:
    assert set(PUBLISHED) <= set(names())
    assert {path.stem for path in RESULTS.glob("*.md")} - set(PUBLISHED) == OTHER_PAGES


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows_are_those_of_the_definitions_as_they_are(name: str) -> None:
    definition = definition_named(name)
    if missing_files(definition, DATA):
        pytest.skip("shared/data is not beside us")
    plan = plan_experiment(name, definition, data=DATA)
    rows = read_experiments(ROWS, name)[name]
    assert [cell.cell for cell in rows.cells if plan.row_digest(cell) != cell.digest] == []
    for choice in rows.choices:
        trials = [trial for trial in plan.trials if trial.cell.method.name == choice.method]
        assert digest_of_trials(trials) == choice.digest


def test_claims_name_methods_that_experiments_have() -> None:
    for number, wanted in (
        (1, (claims.TYPICAL, claims.AS_MANY, claims.FIRST, claims.SECOND)),
        (2, (claims.FIRST, claims.SECOND, *claims.COMPARED)),
        (4, (claims.TYPICAL, claims.FIRST, *DECENTRALISED)),
        (6, (claims.FEDAVG, claims.FIRST, claims.SECOND)),
    ):
        known = {
            method.name
            for name in names()
            if definition_named(name).number == number
            for method in definition_named(name).methods
        }
        assert set(wanted) <= known
