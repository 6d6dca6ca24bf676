"""Number 2: final accuracy of every method under every attack, and the curves behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import (
    count_rounds,
    draw_floor,
    draw_line,
    draw_table,
    panels,
    slant_names,
)
from clients.experiments.drawing.figure_file import SIGNS, caption_of, write
from clients.experiments.statistics import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow

MOST_LINES = 9
"""Methods in one figure of curves; more are cut into several figures."""


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment with attackers."""
    return [*_table(name, cells, folder), *_curves(name, cells, folder)]


def _table(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    methods = list(series.by_method(cells))
    conditions = list(series.grouped(cells, lambda cell: cell.condition))
    finals = {(m, c): _finals(cells, m, c) for m in methods for c in conditions}
    # The fewer stand side by side, so that no figure is wider than a page.
    lines, columns = sorted((methods, conditions), key=len, reverse=True)
    pairs = [[(x, y) if lines is conditions else (y, x) for x in columns] for y in lines]
    table = [[_mean(finals[pair]) for pair in line] for line in pairs]
    texts = [[_text(finals[pair]) for pair in line] for line in pairs]
    size = (2.1 + 0.8 * len(columns), 1.3 + 0.36 * len(lines))
    with panels(1, size=size) as drawn:
        draw_table(drawn.axes[0], table, (lines, columns), texts)
        slant_names(drawn.axes[0])
        floor = series.floor_of(cells)
        floor_text = "" if floor is None else f" The commonest class alone scores {floor:.3f}."
        sentence = f"Mean accuracy of the last five measured rounds.{floor_text}"
        return write(drawn, folder, f"{name}-table", caption_of(sentence, name, cells, SIGNS))


def _mean(finals: Sequence[float]) -> float | None:
    return mean_and_error(finals).mean if finals else None


def _text(finals: Sequence[float]) -> str:
    if not finals:
        return "–"  # noqa: RUF001 - a dash, as tables have it
    estimate = mean_and_error(finals)
    return f"{estimate.mean:.3f}" + ("" if estimate.error is None else f"\n±{estimate.error:.3f}")


def _finals(cells: Sequence[CellRow], method: str, condition: str) -> list[float]:
    return [
        cell.final
        for cell in cells
        if (cell.method, cell.condition) == (method, condition) and cell.final is not None
    ]


def _curves(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    methods = list(series.by_method(cells))
    parts = [methods[start : start + MOST_LINES] for start in range(0, len(methods), MOST_LINES)]
    sentence = "Test accuracy over rounds, a panel for each attack and share of attackers."
    # Of all parts together: baselines alone have no point on a chain.
    caption = caption_of(sentence, name, cells)
    return [
        path
        for number, part in enumerate(parts, start=1)
        for path in _curves_of(
            [cell for cell in cells if cell.method in part],
            folder,
            f"{name}-curves" if len(parts) == 1 else f"{name}-curves-{number}",
            caption,
        )
    ]


def _curves_of(cells: Sequence[CellRow], folder: Path, file: str, caption: str) -> list[Path]:
    places = {method: place for place, method in enumerate(series.by_method(cells))}
    conditions = series.grouped(cells, lambda cell: cell.condition)
    with panels(len(conditions), columns=4, size=(2.7, 2.2), sharey=True) as drawn:
        for axes, (condition, own) in zip(drawn.axes, conditions.items(), strict=True):
            for method, runs in series.by_method(own).items():
                line = series.over_rounds(method, runs, lambda cell: cell.accuracy)
                draw_line(axes, line, places[method])
            draw_floor(axes, series.floor_of(own))
            axes.set_title(condition)
            count_rounds(axes)
        return write(drawn, folder, file, caption)
