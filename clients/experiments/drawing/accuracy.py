"""Figures of accuracy: over rounds, as a table, as bars, along an axis and over two axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import (
    count_rounds,
    draw_bar,
    draw_floor,
    draw_line,
    draw_table,
    name_ticks,
    panels,
    slant_names,
    zoom,
)
from clients.experiments.drawing.figure_file import SIGNS, WHISKERS, caption_of, write
from clients.experiments.statistics import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.experiments.drawing.series import PlotPanel
    from clients.experiments.rows import CellRow

FINAL = "Mean accuracy of the last five measured rounds."

ACCURACY = "test accuracy"

QUALITIES: tuple[tuple[str, Callable[[CellRow], Sequence[float | None]]], ...] = (
    (ACCURACY, lambda cell: cell.accuracy),
    ("test loss", lambda cell: cell.loss),
    ("training loss, all clients", lambda cell: cell.training_loss),
)


def draw_curves(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw accuracy over rounds, a panel for each condition; a single one with its losses."""
    lines = list(series.places_of(series.panels_of(cells)))
    most = series.MOST_LINES
    parts = [set(lines[start : start + most]) for start in range(0, len(lines), most)]
    paths = []
    for number, part in enumerate(parts, start=1):
        drawn = [_only(panel, part) for panel in series.panels_of(cells)]
        drawn = [panel for panel in drawn if panel.lines]
        file = f"{name}-curves" if len(parts) == 1 else f"{name}-curves-{number}"
        draw = _qualities if len(drawn) == 1 else _accuracies
        # Of all parts together: baselines alone have no point on a chain.
        paths += draw(name, cells, drawn, folder, file)
    return paths


def draw_final_table(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy of every method under every condition, as a table."""
    everything, (cells, left_out) = cells, series.well_filled(cells)
    methods = list(series.by_method(cells))
    swept = [axis for axis, labels in series.swept_axes(cells).items() if len(labels) > 1]
    rows = series.grouped(cells, lambda cell: series.scenario_name(cell, swept))
    finals = {
        (method, row): [
            cell.final for cell in own if cell.method == method and cell.final is not None
        ]
        for row, own in rows.items()
        for method in methods
    }
    # The fewer stand side by side, so that no figure is wider than a page.
    lines, columns = sorted((methods, list(rows)), key=len, reverse=True)
    pairs = [[(x, y) if lines is not methods else (y, x) for x in columns] for y in lines]
    table = [[_mean(finals[pair]) for pair in line] for line in pairs]
    texts = [[_text(finals[pair]) for pair in line] for line in pairs]
    size = (2.1 + 0.8 * len(columns), 1.3 + 0.36 * len(lines))
    with panels(1, size=size) as drawn:
        draw_table(drawn.axes[0], table, (lines, columns), texts)
        slant_names(drawn.axes[0])
        names = ("method", "condition") if lines is methods else ("condition", "method")
        drawn.axes[0].set(ylabel=names[0], xlabel=names[1])
        sentence = f"{FINAL}{floor_text(cells)}{left_out_text(left_out)}"
        caption = caption_of(sentence, name, everything, SIGNS)
        return write(drawn, folder, f"{name}-table", caption)


def draw_bars(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy as bars, a panel for each condition."""
    shown = series.panels_of(cells)
    places = series.places_of(shown)
    with panels(len(shown), columns=4, size=(1.2 + 0.45 * len(places), 2.8), sharey=True) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                finals = [cell.final for cell in own if cell.final is not None]
                if finals:
                    draw_bar(axes, places[line], mean_and_error(finals))
            draw_floor(axes, series.floor_of(panel.cells))
            axes.set_title(panel.title)
            axes.set_xticks(range(len(places)), list(places))
            axes.set_xlabel("method")
            slant_names(axes)
        drawn.name_y(ACCURACY)
        caption = caption_of(f"{FINAL}{floor_text(cells)}", name, cells, WHISKERS)
        return write(drawn, folder, f"{name}-bars", caption)


def draw_sweep(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy along the first axis, a panel for each condition."""
    axis = series.AxisScale.of(cells, next(iter(cells[0].axes)))
    shown = series.panels_of(cells, along=axis.name)
    places = series.places_of(shown)
    with panels(len(shown), size=(4.4, 2.8), columns=2, sharey=True) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                draw_line(axes, series.along_axis(line, own, axis, _final), places[line])
            draw_floor(axes, series.floor_of(panel.cells))
            axes.set_title(panel.title)
            name_ticks(axes, axis)
        drawn.name_y(ACCURACY)
        caption = caption_of(f"{FINAL}{floor_text(cells)}", name, cells)
        return write(drawn, folder, f"{name}-sweep", caption)


def draw_grid(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy over the first two axes, a panel for each method and condition."""
    swept = series.swept_axes(cells)
    down, across, *others = swept
    others = [axis for axis in others if len(swept[axis]) > 1]
    groups = series.grouped(
        cells, lambda cell: f"{cell.method}, {series.scenario_name(cell, others)}"
    )
    size = (1.4 + 0.6 * len(swept[across]), 1.0 + 0.48 * len(swept[down]))
    with panels(len(groups), columns=2, size=size) as drawn:
        for axes, (title, own) in zip(drawn.axes, groups.items(), strict=True):
            labels = (series.swept_axes(own)[down], series.swept_axes(own)[across])
            finals = [[_at(own, {down: y, across: x}) for x in labels[1]] for y in labels[0]]
            table = [[_mean(values) for values in line] for line in finals]
            draw_table(axes, table, labels, [[_text(values) for values in line] for line in finals])
            axes.set(title=title, xlabel=across, ylabel=down)
        caption = caption_of(f"{FINAL}{floor_text(cells)}", name, cells, SIGNS)
        return write(drawn, folder, f"{name}-grid", caption)


def _only(panel: PlotPanel, lines: set[str]) -> PlotPanel:
    return series.PlotPanel(panel.title, {k: v for k, v in panel.lines.items() if k in lines})


def _accuracies(
    name: str, cells: Sequence[CellRow], shown: Sequence[PlotPanel], folder: Path, file: str
) -> list[Path]:
    places = series.places_of(shown)
    with panels(len(shown), columns=4, size=(2.7, 2.2)) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            lines = [
                series.over_rounds(line, own, lambda cell: cell.accuracy)
                for line, own in panel.lines.items()
            ]
            for line in lines:
                draw_line(axes, line, places[line.name])
            zoom(axes, lines, series.floor_of(panel.cells))
            axes.set_title(panel.title)
            count_rounds(axes)
        drawn.name_y(ACCURACY)
        sentence = (
            "Test accuracy over rounds, a panel for each condition, each with the scale of its "
            f"curves after the first fifth of the rounds.{floor_text(cells)}"
        )
        return write(drawn, folder, file, caption_of(sentence, name, cells))


def _qualities(
    name: str, cells: Sequence[CellRow], shown: Sequence[PlotPanel], folder: Path, file: str
) -> list[Path]:
    (panel,) = shown
    qualities = [
        (title, of)
        for title, of in QUALITIES
        if any(value is not None for cell in panel.cells for value in of(cell))
    ]
    half = max(cell.rounds for cell in panel.cells) // 2
    with panels(len(qualities) + 1, columns=2, size=(4.6, 2.7)) as drawn:
        for axes, (title, of) in zip(drawn.axes, qualities, strict=False):
            lines = [series.over_rounds(line, own, of) for line, own in panel.lines.items()]
            for place, line in enumerate(lines):
                draw_line(axes, line, place)
            zoom(axes, lines, series.floor_of(panel.cells) if title == ACCURACY else None)
            axes.set(title=title, ylabel=title.partition(",")[0])
            count_rounds(axes)
        for place, (name_, own) in enumerate(panel.lines.items()):
            late = series.over_rounds(name_, own, lambda cell: cell.accuracy).after(half)
            draw_line(drawn.axes[-1], late, place)
        drawn.axes[-1].set(title=f"{ACCURACY}, second half enlarged", ylabel=ACCURACY)
        count_rounds(drawn.axes[-1])
        sentence = (
            "Quality over rounds, on the scale of the curves after the first fifth of the rounds."
            f"{floor_text(cells)}"
        )
        return write(drawn, folder, file, caption_of(sentence, name, cells))


def _final(cell: CellRow) -> float | None:
    return cell.final


def _at(cells: Sequence[CellRow], labels: dict[str, str]) -> list[float]:
    return [
        cell.final
        for cell in cells
        if cell.final is not None and all(cell.axes[axis] == x for axis, x in labels.items())
    ]


def _mean(finals: Sequence[float]) -> float | None:
    return mean_and_error(finals).mean if finals else None


def _text(finals: Sequence[float]) -> str:
    if not finals:
        return "–"  # noqa: RUF001 - a dash, as tables have it
    estimate = mean_and_error(finals)
    return f"{estimate.mean:.3f}" + ("" if estimate.error is None else f"\n±{estimate.error:.3f}")


def floor_text(cells: Sequence[CellRow]) -> str:
    """Return the sentence on the floor, after a space; none where nothing is classified."""
    floor = series.floor_of(cells)
    return "" if floor is None else f" The commonest class alone scores {floor:.3f}."


def left_out_text(methods: Sequence[str]) -> str:
    """Return the sentence on methods without a column, after a space; none if all have one."""
    return f" Run under one condition alone: {', '.join(methods)}." if methods else ""
