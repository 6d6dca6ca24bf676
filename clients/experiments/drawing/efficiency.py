"""Figures of cost: accuracy against simulated time, what that time is spent on, how costs grow."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.costs import (
    RATES,
    Transmission,
    computation_of,
    solo_training_seconds,
    time_axis,
    transmission_of,
)
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START
from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import (
    COLOURS,
    draw_bar,
    draw_floor,
    draw_line,
    panels,
    slant_names,
)
from clients.experiments.drawing.figure_file import WHISKERS, caption_of, write
from clients.experiments.statistics import mean_and_error
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from clients.experiments.drawing.canvas import Panels
    from clients.experiments.rows import CellRow


def is_timed(cell: CellRow) -> bool:
    """Return whether a row says enough to put its rounds on a time axis.

    Args:
        cell: any.
    """
    try:
        time_axis(cell, Transmission.COUNTED, RATES[0])
    except ConfigurationError:
        return False
    return True


def draw_time(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw accuracy against simulated time, by three models of transmission."""
    ways = [(model, rate) for model in Transmission for rate in RATES]
    paths = []
    for file, panel in _timed_figures(f"{name}-time", cells):
        alone = solo_training_seconds(panel.cells)
        with panels(len(ways), sharey=True, size=(3.2, 2.2)) as drawn:
            for axes, (model, rate) in zip(drawn.axes, ways, strict=True):
                for place, (line, own) in enumerate(panel.lines.items()):
                    draw_line(axes, _timed(line, own, (model, rate), alone), place)
                draw_floor(axes, series.floor_of(panel.cells))
                axes.set_title(f"{model}, {rate:g} Mbit/s")
                axes.set(xscale="log", xlabel="simulated seconds")
                axes.minorticks_off()
            drawn.name_y("test accuracy")
            sentence = (
                "Test accuracy against seconds of computation and transmission. What is "
                "transmitted is that of the paper's text, of the authors' script, or counted as it "
                "is really sent."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def draw_spent(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of computation and transmission time."""
    paths = []
    for file, panel in _timed_figures(f"{name}-spent", cells):
        alone = solo_training_seconds(panel.cells)
        with panels(len(RATES), size=(3.4, 2.8)) as drawn:
            for axes, rate in zip(drawn.axes, RATES, strict=True):
                for place, own in enumerate(panel.lines.values()):
                    _draw_spent(axes, place, own, (rate, alone))
                axes.set_xticks(range(len(panel.lines)), list(panel.lines))
                slant_names(axes)
                axes.set(
                    title=f"{rate:g} Mbit/s", xlabel="method", ylabel="seconds of the whole run"
                )
            sentence = "What the simulated time goes into, by the bytes that are really sent."
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells, WHISKERS))
    return paths


def draw_growth(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw scoring time and bytes against n, C and |w|, on logarithmic axes."""
    start = next((sizes_of(cell) for cell in cells if cell.axes[GROWTH_AXIS] == GROWTH_START), None)
    if start is None:
        return []
    paths = []
    for file, panel in series.figures_of(f"{name}-growth", cells, along=GROWTH_AXIS):
        with panels(3, size=(3.4, 2.8)) as drawn:
            for place, (line, own) in enumerate(panel.lines.items()):
                _grow(drawn, own, start, (f"{line}, " if len(panel.lines) > 1 else "", 2 * place))
            sentence = (
                "Seconds that all members take to score, and bytes on the busiest link, of which "
                "one size varies at a time."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def _timed_figures(file: str, cells: Sequence[CellRow]) -> list[tuple[str, series.PlotPanel]]:
    timed = [cell for cell in cells if is_timed(cell)]
    return series.figures_of(file, timed) if timed else []


def _timed(
    line: str, cells: Sequence[CellRow], way: tuple[Transmission, float], alone: float | None
) -> series.PlotLine:
    """Return accuracy over the mean time at which the seeds end each round."""
    accuracy = series.over_rounds(line, cells, lambda cell: cell.accuracy)
    clocks = [time_axis(cell, *way, training=alone) for cell in cells]
    at = [fmean(clock[int(number) - 1] for clock in clocks) for number in accuracy.x]
    return series.PlotLine(line, tuple(at), accuracy.mean, accuracy.error)


def _draw_spent(
    axes: Axes, place: int, cells: Sequence[CellRow], way: tuple[float, float | None]
) -> None:
    rate, alone = way
    computed = [_computed(cell, alone) for cell in cells]
    sent = [sum(transmission_of(cell, Transmission.COUNTED, rate)) for cell in cells]
    base = mean_and_error(computed)
    draw_bar(axes, place, base, color=COLOURS[0], label="computation")
    height = mean_and_error(sent)
    draw_bar(axes, place, height, bottom=base.mean, hatch="///", color="0.8", label="transmission")


def _computed(cell: CellRow, alone: float | None) -> float:
    return computation_of(cell, alone) * cell.rounds


def _grow(
    drawn: Panels,
    cells: Sequence[CellRow],
    start: tuple[float, float, float],
    named: tuple[str, int],
) -> None:
    """Draw one line's growth in each panel, from the sizes of the start."""
    titles = ("n, training clients", "C, members", "bytes of a model")
    prefix, style = named
    for place, (axes, title) in enumerate(zip(drawn.axes, titles, strict=True)):
        seconds: dict[float, list[float]] = {}
        sent: dict[float, list[float]] = {}
        for cell in cells:
            sizes = sizes_of(cell)
            if sizes is None or any(
                sizes[other] != start[other] for other in range(3) if other != place
            ):
                continue
            if cell.seconds.scoring is not None:
                seconds.setdefault(sizes[place], []).append(cell.seconds.scoring / cell.rounds)
            if "busiest" in cell.bytes:
                megabytes = cell.bytes["busiest"] / cell.rounds / 1e6
                sent.setdefault(sizes[place], []).append(megabytes)
        draw_line(axes, series.line_through(f"{prefix}scoring, seconds a round", seconds), style)
        draw_line(axes, series.line_through(f"{prefix}busiest link, MB a round", sent), style + 1)
        axes.set(xscale="log", yscale="log", title=title, xlabel=title)
        axes.set_ylabel("seconds, and MB, a round")
        measured = sorted({*axes.get_xticks(), *seconds, *sent} if style else {*seconds, *sent})
        axes.set_xticks(measured, [_short(x) for x in measured])
        axes.set_xticks([], minor=True)


def _short(size: float) -> str:
    """Return a size in a few characters: 36, 31k, 1.2M."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if size >= factor:
            shown = size / factor
            return f"{shown:.0f}{unit}" if shown >= 10 else f"{shown:.2g}{unit}"
    return f"{size:g}"


def sizes_of(cell: CellRow) -> tuple[float, float, float] | None:
    """Return n, C and the bytes of a model; None where the row has no sizes."""
    sizes = (cell.extra.get("trainers"), cell.extra.get("committee"), cell.bytes.get("model"))
    return None if None in sizes else (float(sizes[0]), float(sizes[1]), float(sizes[2]))  # type: ignore[arg-type]
