"""What report and figures say of rows that nobody ran, and the numbers behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.experiments.definition import FigureKind, definition_named
from clients.experiments.figures import DRAWN_BY, draw
from clients.experiments.plots import Drawn, caption_of
from clients.experiments.report import captured_share, report, tables
from clients.experiments.rows import CellSeconds, ChoiceRow, ExperimentRows
from clients.experiments.series import (
    MOST_LINES,
    Estimate,
    mean_and_error,
    over_rounds,
    paired,
    panels_of,
    positions_of,
    share_at_most,
    spearman,
    times_by_accuracy,
    times_by_samples,
)
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import EVIDENCE, cell, constant, rows
from tests.clients.experiments.minis import defined
from tests.faults import times


def test_a_table_cell_is_mean_and_error_over_seeds() -> None:
    # .8, .9, 1.0: mean .9, deviation .1, over the root of 3.
    lines = tables([*constant("CMFL-I", (0.8, 0.9, 1.0)), *constant("Krum", (0.5, 0.5))])
    assert lines[2:5] == [
        "|  | CMFL-I | Krum |",
        "| --- | --- | --- |",
        "| clean | 0.900 ± 0.058 | 0.500 ± 0.000 (2 of 3 seeds) |",
    ]


def test_a_captured_committee_is_told_by_its_worst_round() -> None:
    # Of 4 members 1 and 3 are malicious: three quarters; a server has no committee.
    held = cell("robust", 1, (0.8, 0.8), malicious_members=(1, 3), extra={"committee": 4})
    assert captured_share(held) == 0.75
    assert captured_share(cell("FedAvg", 1, (0.8,))) is None
    calm = cell("robust", 2, (0.8, 0.8), malicious_members=(0, 0), extra={"committee": 4})
    assert "| clean | 0.375 ± 0.375 |" in tables([held, calm])


def test_a_report_tells_all_and_is_the_same_each_time() -> None:
    cells = [*constant("CMFL-I", (0.8, 0.9, 1.0), ledger=EVIDENCE)]
    choice = ChoiceRow(
        experiment="normal-sent140",
        method="CMFL-I",
        factor=0.5,
        finals={"0.5": 0.8, "1": 0.7},
        seeds=(100, 101),
        digest="0x00",
    )
    found = {
        "normal-sent140": ExperimentRows(
            tuple(cells), (), (choice,), definition_named("normal-sent140")
        ),
        "empty": ExperimentRows(),
    }
    text = report(found)
    assert text == report(found)
    assert "## 1. Normal training, Sentiment140: `normal-sent140`" in text
    assert "| clean | 0.900 ± 0.058 |" in text
    assert (
        "| normal-sent140 | CMFL-I | 0.5 (smallest tried) | 0.1 | 2 | 0.5: 0.800, 1: 0.700 |"
        in text
    )
    assert EVIDENCE.head in text
    assert "| 1 | normal-sent140 | 3 | 0 | 3 of 3 | 1.5 |" in text
    assert "empty" not in text


NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12)


def test_a_mean_has_the_error_of_the_sample_deviation() -> None:
    # Mean 4, squares 4 + 0 + 4 = 8, s² = 8 / 2 = 4, error 2 / sqrt(3).
    found = mean_and_error([2.0, 4.0, 6.0])
    assert (found.mean, found.count) == (4.0, 3)
    assert found.error == pytest.approx(2 / sqrt(3))


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean_and_error([])


def test_a_difference_is_taken_pair_by_pair() -> None:
    # Differences 1, 1, 1 have no spread, though both sides have; what has no partner is left out.
    own, theirs = {1: 2.0, 2: 11.0, 3: 101.0, 4: 7.0}, {1: 1.0, 2: 10.0, 3: 100.0, 5: 0.0}
    assert paired(own, theirs) == Estimate(1.0, 0.0, 3)
    assert paired(own, {}) is None


def test_the_rank_correlation_of_five_clients() -> None:
    # Rank differences 0, 1, 1, 1, 1: 1 - 6 * 4 / (5 * 24) = 0.8.
    assert spearman([1, 2, 3, 4, 5], [10, 30, 20, 50, 40]) == pytest.approx(0.8)


def test_without_an_order_there_is_no_correlation() -> None:
    assert spearman([1, 2, 3], [4, 4, 4]) is None
    assert spearman([1], [1]) is None
    assert spearman([], []) is None


@given(NUMBERS)
def test_only_the_order_counts(values: list[float]) -> None:
    others = values[::-1]
    found = spearman(values, others)
    assert found == spearman([value**3 for value in values], others)
    if found is not None:
        assert spearman(others, values) == pytest.approx(found)
        assert spearman(values, [-other for other in others]) == pytest.approx(-found)
        assert spearman(values, values) == pytest.approx(1.0)


TRAFFIC = {
    "model": 400,
    "busiest": 8000,
    "by_round": [4000, 4000],
    "phases": {"model": 800, "updates": 800, "reading": 6400},
}
TIMED: dict[str, Any] = {
    "seconds": CellSeconds(wall=2.0, cpu=2.0, training=1.0, scoring=0.5, ledger=0.5),
    "bytes": TRAFFIC,
    "extra": {"committee": 3, "trainers": 5},
}
ONE = rows(
    cell(m, s, (0.2, None, 0.5), client_accuracy=(0.1, None, 0.9), ledger=EVIDENCE)
    for m in ("CMFL-I", "CMFL-II")
    for s in (1, 2)
)
GRID = rows(cell("CMFL-I", 1, (0.3,), axes={"alpha": a, "omega": "10"}) for a in ("10", "20"))
SIZES = rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED, axes={"size": "base"})])
SWEPT = rows(
    cell(m, s, (0.1 * at,) * 2, axes={"rate": f"0.{at}"}, learning_rate=0.1 * at)
    for m in ("CMFL-I", "FedAvg")
    for at in (1, 9)
    for s in (1, 2)
)
WRITE = "clients.experiments.plots.write"
ATTACKED = {"malicious": (0,), "attack": "alie", "condition": "lies"}


def figured(found: ExperimentRows, *kinds: FigureKind) -> ExperimentRows:
    return replace(found, definition=defined().model_copy(update={"figure": kinds}))


def stems(paths: Sequence[Path]) -> list[str]:
    """Return the figures of some files, each of which is there as SVG and PNG."""
    assert [path.suffix for path in paths] == [".svg", ".png"] * (len(paths) // 2)
    assert all(path.read_bytes()[:5] in {b"<?xml", b"\x89PNG\r"} for path in paths)
    return [path.stem for path in paths[::2]]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the figures that are drawn; none is written, which takes the longest."""
    names: list[str] = []

    def note(_drawn: Drawn, path: Path, _experiment: str) -> list[Path]:
        names.append(path.name)
        return [path]

    monkeypatch.setattr(WRITE, note)
    return names


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each figure as SVG, without what all have alike: `make faults` writes it wholly."""

    def once(drawn: Drawn, path: Path, experiment: str) -> list[Path]:
        assert caption_of(drawn.sentence, experiment, drawn.cells, drawn.errors)
        drawing = path.with_suffix(".svg")
        drawn.figure.savefig(drawing, bbox_inches=None)
        return [drawing]

    if times(1, 2) == 1:
        monkeypatch.setattr(WRITE, once)


def svg(folder: Path, name: str) -> str:
    text = (folder / f"{name}.svg").read_text("utf-8")
    return " ".join(" ".join(re.findall(r">([^<>]+)</t", text)).split())


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        *((kind, ONE) for kind in ("curves", "table", "heat", "clients", "samples")),
        ("sweep", SWEPT),
        ("attackers", SWEPT),
        ("grid", GRID),
        ("growth", SIZES),
        ("time", rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED)])),
        ("spent", rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED)])),
    ],
)
@pytest.mark.usefixtures("plain")
def test_every_kind_of_figure_is_drawn(tmp_path: Path, kind: FigureKind, found: Any) -> None:
    drawing, *_ = draw({"mine": figured(found, kind)}, tmp_path)
    assert drawing.name == f"mine-{kind}.svg"
    assert drawing.read_bytes().startswith(b"<?xml")


def test_all_kinds_are_known_to_the_drawing() -> None:
    assert {*DRAWN_BY, "bound"} == set(get_args(FigureKind))


@pytest.mark.parametrize(
    ("found", "kinds"), [(ONE, ["table", "curves"]), (SWEPT, ["sweep", "curves"]), (GRID, ["grid"])]
)
@pytest.mark.parametrize("number", [None, 3])
def test_unasked_figures_follow_from_axes_not_from_the_number(
    tmp_path: Path, named: list[str], number: int | None, found: ExperimentRows, kinds: list[str]
) -> None:
    numbered = rows(replace(cell, number=number) for cell in found.cells)
    draw({"mine": numbered}, tmp_path)
    assert named == [f"mine-{kind}" for kind in kinds]


def test_a_swept_axis_is_a_line_for_each_value(tmp_path: Path) -> None:
    draw({"mine": figured(SWEPT, "curves")}, tmp_path)
    words = svg(tmp_path, "mine-curves")
    for line in ("CMFL-I, rate = 0.1", "CMFL-I, rate = 0.9", "FedAvg, rate = 0.9"):
        assert line in words
    assert "Learning rate 0.1 and 0.9." in words
    (lines,) = panels_of(SWEPT.cells).values()
    assert {name: {cell.final for cell in own} for name, own in lines.items()} == {
        "CMFL-I, rate = 0.1": {0.1},
        "FedAvg, rate = 0.1": {0.1},
        "CMFL-I, rate = 0.9": {0.9},
        "FedAvg, rate = 0.9": {0.9},
    }


@pytest.mark.parametrize("along", [None, "rate"])
def test_nothing_but_seeds_is_pooled(along: str | None) -> None:
    cells = [
        cell(m, s, (0.5,), condition=c, axes={"rate": r, "steps": t, "on": o})
        for m in ("a", "b")
        for c in ("x", "y")
        for r in ("1", "2")
        for t in ("1", "2", "3")
        for o in ("u", "v")
        for s in (1, 2)
    ]
    for lines in panels_of(cells, along).values():
        assert len(lines) <= MOST_LINES
        for own in lines.values():
            scenarios = {
                (one.method, one.condition, *(x for a, x in one.axes.items() if a != along))
                for one in own
            }
            assert len(scenarios) == 1
            assert len(own) == (2 if along is None else 4)


def test_a_kind_without_its_axes_is_refused_and_nothing_drawn(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"figure 'grid' needs 2 axes; there are 1 \(rate"):
        draw({"one": ONE, "two": figured(SWEPT, "grid")}, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_a_kind_of_the_repository_is_left_out_elsewhere(tmp_path: Path, named: list[str]) -> None:
    draw({"mine": figured(ONE, "bound")}, tmp_path)
    assert named == ["mine-table", "mine-curves"]


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw({"seven": figured(ONE, "curves")}, tmp_path / name) for name in "ab")
    assert stems(first) == ["seven-curves"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_caption_names_a_point_that_anybody_can_audit() -> None:
    said = caption_of("Curves.", "one", ONE.cells)
    assert "mean over seeds 1, 2; bands are one standard error" in said
    assert "No client attacks." in said
    assert EVIDENCE.address in said
    assert EVIDENCE.head in said
    assert said.endswith("cmfl experiment audit one CMFL-I__seed1")


def test_a_caption_names_attack_and_rate() -> None:
    said = caption_of("Curves.", "mine", [cell("CMFL-I", 1, (0.3,), **ATTACKED)])
    assert "lies: alie by 33% of the clients." in said
    assert "Nobody" not in said
    both = [cell("CMFL-I", 1, (0.3,)), cell("CMFL-I", 1, (0.3,), **ATTACKED)]
    assert "clean: no attackers; lies: alie by 33% of the clients." in caption_of("", "", both)


def test_times_that_nobody_took_are_no_figure(tmp_path: Path) -> None:
    found = figured(rows([cell("Krum", 1, (0.3,))]), "time", "spent")
    assert draw({"four": found}, tmp_path) == []


def test_rounds_that_no_seed_measured_are_no_points() -> None:
    cells = [cell("A", 1, (0.2, None, 0.6)), cell("A", 2, (0.4, None, 0.6))]
    line = over_rounds("A", cells, lambda one: one.accuracy)
    assert line.x == (1.0, 3.0)
    assert line.mean == pytest.approx((0.3, 0.6))
    # .2 and .4: deviation .1414, over the root of 2.
    assert line.error == pytest.approx((0.1, 0.0))


def test_a_line_ends_where_a_seeds_model_is_non_finite() -> None:
    cells = [cell("A", 1, (0.2, 0.5)), cell("A", 2, (0.4, None))]
    line = over_rounds("A", cells, lambda one: one.accuracy)
    assert line.x == (1.0,)
    assert line.mean == pytest.approx((0.3,))
    (alone,) = over_rounds("A", cells[:1], lambda one: one.accuracy).error[:1]
    assert alone == 0  # no band: a single seed says nothing of its spread


def test_the_share_of_clients_at_most_x() -> None:
    cells = [cell("A", 1, (0.5,), times_aggregated=(0, 0, 2, 5))]
    line = share_at_most("A", cells, lambda one: one.times_aggregated)
    assert (line.x, line.mean) == ((0, 2, 5), (0.5, 0.75, 1.0))


def test_clients_fall_into_classes_of_accuracy() -> None:
    one = cell(
        "A", 1, (0.5,), times_aggregated=(4, 2, 9, 1), client_accuracy=(0.1, 0.19, None, 0.95)
    )
    line = times_by_accuracy("A", [one])
    assert line.x == pytest.approx((0.1, 0.9))
    assert line.mean == (3.0, 1.0)


def test_clients_are_parted_by_their_samples() -> None:
    one = cell("A", 1, (0.5,), times_aggregated=(7, 1, 3, 5), samples=(40, 10, 20, 30))
    assert times_by_samples("A", [one], classes=2).mean == (2.0, 6.0)


@pytest.mark.parametrize(
    ("labels", "positions"),
    [(("10", "5"), (10.0, 5.0)), (("10", "base"), (0.0, 1.0)), (("1", "1.0"), (0.0, 1.0))],
)
def test_an_axis_of_numbers_has_them_as_positions(labels: tuple[str, ...], positions: Any) -> None:
    cells = [cell("A", 1, (0.5,), axes={"size": label}) for label in labels]
    assert positions_of(cells, "size") == dict(zip(labels, positions, strict=True))
