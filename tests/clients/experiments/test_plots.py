"""Figures of rows that nobody ran."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from clients.experiments.drawing.canvas import line_style
from clients.experiments.drawing.figure_file import caption_of
from clients.experiments.plots import draw
from clients.experiments.rows import CellSeconds, ExperimentRows
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import EVIDENCE, cell, rows

if TYPE_CHECKING:
    from pathlib import Path

TRAFFIC = {
    "model": 400,
    "busiest": 8000,
    "by_round": [4000, 4000],
    "phases": {"model": 800, "updates": 800, "reading": 6400},
}
TIMED: dict[str, Any] = {
    "number": 4,
    "seconds": CellSeconds(wall=2.0, cpu=2.0, training=1.0, scoring=0.5, ledger=0.5),
    "bytes": TRAFFIC,
    "extra": {"committee": 3, "trainers": 5},
}
NUMBERS: dict[str, ExperimentRows] = {
    "one": rows(
        cell(m, s, (0.2, None, 0.5), client_accuracy=(0.1, None, 0.9), ledger=EVIDENCE)
        for m in ("CMFL-I", "CMFL-II")
        for s in (1, 2)
    ),
    "two": rows([cell("CMFL-I", 1, (0.3, 0.4), number=2), cell("Krum", 1, (None,), number=2)]),
    "three": rows(
        cell("CMFL-I", 1, (0.3,), number=3, axes={"alpha": a, "omega": "10"}) for a in ("10", "20")
    ),
    "four": rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED), cell("Krum", 1, (0.3,), number=4)]),
    "sizes": rows([cell("CMFL-I", 1, (0.3, 0.4), **TIMED, axes={"size": "base"})]),
    "five": rows([cell("CMFL-I", 1, (0.3,), number=5, axes={"epsilon": "10"})]),
    "six": rows([cell("FedAvg", 1, (0.3, 0.4), number=6)]),
    "seven": rows([cell("CMFL-I", 1, (0.3,), number=7)]),
}


def test_every_number_has_its_figures_as_svg_and_png(tmp_path: Path) -> None:
    paths = draw(NUMBERS, tmp_path)
    names = ["one-curves", "one-clients", "two-table", "two-curves", "three", "four-time"]
    names += ["four-spent", "sizes", "five", "six-table", "six-curves", "seven"]
    assert [path.name for path in paths] == [f"{n}.{e}" for n in names for e in ("svg", "png")]
    assert all(path.read_bytes()[:5] in {b"<?xml", b"\x89PNG\r"} for path in paths)


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw({"seven": NUMBERS["seven"]}, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_caption_names_a_point_that_anybody_can_audit() -> None:
    said = caption_of("Curves.", "one", NUMBERS["one"].cells)
    assert "seeds 1, 2; bands are one standard error" in said
    assert EVIDENCE.address in said
    assert EVIDENCE.head in said
    assert said.endswith("cmfl experiment audit one CMFL-I__seed1")


def test_a_caption_reports_single_seeds_and_missing_chains() -> None:
    said = caption_of("Curves.", "seven", NUMBERS["seven"].cells)
    assert "seed 1, and so no errors" in said
    assert said.endswith("No point of it is on a chain.")


def test_no_two_lines_of_a_figure_share_dashes_and_marker() -> None:
    styles = [(line_style(place)["dashes"], line_style(place)["marker"]) for place in range(10)]
    assert len(set(styles)) == 10


def test_times_that_nobody_took_are_no_figure(tmp_path: Path) -> None:
    assert draw({"four": rows([cell("Krum", 1, (0.3,), number=4)])}, tmp_path) == []


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"install the extra plots"):
        draw({"seven": NUMBERS["seven"]}, tmp_path)
