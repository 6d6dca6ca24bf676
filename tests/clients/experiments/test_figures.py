"""Figures of rows that nobody ran."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from clients.experiments.canvas import Panels, line_style, panels, zoom
from clients.experiments.definition import FigureKind
from clients.experiments.figures import DRAWN_BY, caption_of, draw, tone_of
from clients.experiments.rows import CellSeconds
from clients.experiments.series import MOST_LINES, PlotLine, panels_of
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import EVIDENCE, cell, rows
from tests.clients.experiments.minis import defined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.experiments.rows import ExperimentRows

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
WRITE = "clients.experiments.figures.write"
ATTACKED = {"malicious": (0,), "attack": "alie", "condition": "lies"}


def figured(found: ExperimentRows, *kinds: FigureKind) -> ExperimentRows:
    """Return rows whose definition asks for some kinds of figure."""
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

    def note(_drawn: Panels, folder: Path, name: str, _caption: str) -> list[Path]:
        names.append(name)
        return [folder / f"{name}.svg", folder / f"{name}.png"]

    monkeypatch.setattr(WRITE, note)
    return names


def svg(folder: Path, name: str) -> str:
    """Return the words of a figure, the lines of its caption as one."""
    text = (folder / f"{name}.svg").read_text("utf-8")
    return " ".join(" ".join(re.findall(r">([^<>]+)</t", text)).split())


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("curves", ONE),
        ("table", ONE),
        ("bars", ONE),
        ("heat", ONE),
        ("clients", ONE),
        ("samples", ONE),
        ("sweep", SWEPT),
        ("attackers", SWEPT),
        ("grid", GRID),
        ("growth", SIZES),
        ("time", rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED)])),
        ("spent", rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED)])),
    ],
)
def test_every_kind_of_figure_is_drawn(
    tmp_path: Path, kind: FigureKind, found: ExperimentRows
) -> None:
    assert stems(draw({"mine": figured(found, kind)}, tmp_path)) == [f"mine-{kind}"]


def test_all_kinds_are_known_to_the_drawing() -> None:
    assert {*DRAWN_BY, "bound"} == set(get_args(FigureKind))


@pytest.mark.parametrize(
    ("found", "kinds"),
    [(ONE, ["table", "curves"]), (SWEPT, ["sweep", "curves"]), (GRID, ["grid"])],
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
    (panel,) = panels_of(SWEPT.cells)
    assert {name: {cell.final for cell in own} for name, own in panel.lines.items()} == {
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
    for panel in panels_of(cells, along):
        assert len(panel.lines) <= MOST_LINES
        for own in panel.lines.values():
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


def test_a_heat_map_shows_differences_to_calm_training(tmp_path: Path) -> None:
    # Of two seeds: .90 and .94 without an attack; .80 - .90 and .80 - .94 are -.10 and -.14.
    cells = [
        *(cell("FedAvg", s, (a,)) for s, a in ((1, 0.90), (2, 0.94))),
        *(cell("mine", s, (0.8,), condition=c) for s in (1, 2) for c in ("clean", "lies", "ipm")),
        *(cell("FedAvg", s, (0.5,), condition=c) for s in (1, 2) for c in ("lies", "ipm")),
        cell("once", 1, (0.9,)),
    ]
    draw({"mine": figured(rows(cells), "heat")}, tmp_path)
    words = svg(tmp_path, "mine-heat")
    assert "FedAvg, clean: 0.920" in words
    assert "\N{MINUS SIGN}0.120 ±0.020" in words
    assert "less that of FedAvg under clean, paired by seed" in words
    assert "Run under one condition alone: once." in words


def test_a_loss_is_the_redder_the_larger_it_is() -> None:
    tones = [tone_of(difference) for difference in (-0.9, -0.3, -0.1, -0.01, 0.01)]
    assert tones == sorted(tones)
    assert tones[0] == tones[1] == -1.0
    assert tones[-1] == -tones[-2] > 0


def test_a_panel_shows_where_its_curves_settle() -> None:
    # Of ten rounds the first two are left out; the ends are 0.8 and 1.0, a twentieth of that apart.
    line = PlotLine("a", tuple(map(float, range(1, 11))), (0.1, *[0.9] * 9), (0.1,) * 10)
    with panels(1) as drawn:
        zoom(drawn.axes[0], [line], 0.125)
        assert drawn.axes[0].get_ylim() == pytest.approx((0.79, 1.01))
        assert not drawn.axes[0].lines
        zoom(drawn.axes[0], [line], 0.9)
        assert len(drawn.axes[0].lines) == 1


@pytest.mark.parametrize("kind", sorted({*DRAWN_BY} - {"growth", "grid", "sweep", "attackers"}))
def test_every_panel_names_its_axes(kind: FigureKind, monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed: list[str] = []

    def look(drawn: Panels, *_: object) -> list[Path]:
        for place, axes in enumerate(drawn.axes):
            is_left = place % drawn.columns == 0
            if not axes.get_xlabel() or (is_left and not axes.get_ylabel()):
                unnamed.append(axes.get_title())
        return []

    monkeypatch.setattr(WRITE, look)
    timed = rows(cell("CMFL-I", s, (0.3, 0.4), client_accuracy=(0.1,), **TIMED) for s in (1, 2))
    draw({"mine": figured(timed, kind)}, Path())
    assert unnamed == []


def test_many_methods_are_several_figures(tmp_path: Path, named: list[str]) -> None:
    many = rows(
        cell(f"m{number}", 1, (0.3, 0.4), condition=c) for number in range(11) for c in "xy"
    )
    draw({"many": figured(many, "curves")}, tmp_path)
    assert named == ["many-curves-1", "many-curves-2"]


def test_a_condition_is_a_figure_of_clients_of_its_own(tmp_path: Path, named: list[str]) -> None:
    found = rows(cell("CMFL-I", 1, (0.3,), condition=c) for c in ("clean", "lies"))
    draw({"mine": figured(found, "clients")}, tmp_path)
    assert named == ["mine-clients-1", "mine-clients-2"]


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw({"seven": figured(ONE, "curves")}, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_caption_names_a_point_that_anybody_can_audit() -> None:
    said = caption_of("Curves.", "one", ONE.cells)
    assert "mean over seeds 1, 2; bands are one standard error" in said
    assert "Nobody attacks." in said
    assert EVIDENCE.address in said
    assert EVIDENCE.head in said
    assert said.endswith("cmfl experiment audit one CMFL-I__seed1")


def test_a_caption_reports_single_seeds_and_missing_chains() -> None:
    said = caption_of("Curves.", "seven", [cell("CMFL-I", 1, (0.3,))])
    assert "seed 1: one seed a point, and so no errors." in said
    assert said.endswith("No point of it is on a chain.")


def test_a_caption_names_attack_and_rate() -> None:
    said = caption_of("Curves.", "mine", [cell("CMFL-I", 1, (0.3,), **ATTACKED)])
    assert "lies: alie by 33 % of the clients." in said
    assert "Nobody" not in said
    both = [cell("CMFL-I", 1, (0.3,)), cell("CMFL-I", 1, (0.3,), **ATTACKED)]
    assert "clean: nobody attacks; lies: alie by 33 % of the clients." in caption_of("", "", both)


def test_rows_that_name_no_attack_are_never_called_calm() -> None:
    old = cell("CMFL-I", 1, (0.3,), **ATTACKED | {"attack": None})
    assert "the attack lies by 33 % of the clients." in caption_of("", "", [old])


def test_a_caption_of_many_conditions_gives_the_range() -> None:
    cells = [
        cell("a", 1, (0.3,), condition=f"c{count}", malicious=tuple(range(count)))
        for count in (0, 1, 1, 2, 2, 3)
    ] + [cell("a", 1, (0.3,), condition="d", malicious=(1,))]
    said = caption_of("", "", cells)
    assert "33 to 100 % of the clients attack in all 5 conditions but c0." in said


def test_a_caption_reports_uneven_seeds() -> None:
    cells = [cell("a", 1, (0.3,)), cell("a", 2, (0.3,)), cell("b", 1, (0.3,))]
    said = caption_of("", "mine", cells)
    assert "seeds 1, 2, 1 to 2 of them at a point" in said
    assert "a point with one seed has none" in said


def test_no_two_lines_of_a_figure_share_dashes_and_marker() -> None:
    styles = [(line_style(place)["dashes"], line_style(place)["marker"]) for place in range(10)]
    assert len(set(styles)) == 10


def test_times_that_nobody_took_are_no_figure(tmp_path: Path) -> None:
    found = figured(rows([cell("Krum", 1, (0.3,))]), "time", "spent")
    assert draw({"four": found}, tmp_path) == []


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"need the extra \[plots\]"):
        draw({"seven": ONE}, tmp_path)
