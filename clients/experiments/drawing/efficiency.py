"""Number 4: accuracy against simulated time, what that time is spent on, and how costs grow."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.baselines.simulated_time import (
    computation_of,
    solo_training_seconds,
    time_axis,
    transmission_of,
)
from clients.experiments.baselines.transmission import RATES, Transmission
from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import COLOURS, draw_floor, draw_line, panels, slant_names
from clients.experiments.drawing.figure_file import caption_of, write
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.drawing.canvas import Panels
    from clients.experiments.rows import CellRow

AXIS, BASE = "size", "base"
"""The axis along which an experiment varies sizes, and the label of its start."""

HATCHES = ("", "///")
"""Computation and transmission, told apart without colour."""


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment on time, or one along an axis of sizes."""
    if all(AXIS in cell.axes for cell in cells):
        return _growth(name, cells, folder)
    timed = [cell for cell in cells if is_timed(cell)]
    if not timed:
        return []
    return [*_against_time(name, timed, folder), *_spent(name, timed, folder)]


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


def _against_time(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    ways = [(model, rate) for model in Transmission for rate in RATES]
    alone = solo_training_seconds(cells)
    with panels(len(ways), sharey=True, size=(3.2, 2.2)) as drawn:
        for axes, (model, rate) in zip(drawn.axes, ways, strict=True):
            for place, (method, own) in enumerate(series.by_method(cells).items()):
                draw_line(axes, _timed(method, own, (model, rate), alone), place)
            draw_floor(axes, series.floor_of(cells))
            axes.set_title(f"{model}, {rate:g} Mbit/s")
            axes.set_xscale("log")
            axes.minorticks_off()
        sentence = (
            "Test accuracy against seconds of computation and transmission. What is transmitted is "
            "that of the paper's text, of the authors' script, or counted as it is really sent."
        )
        return write(drawn, folder, f"{name}-time", caption_of(sentence, name, cells))


def _timed(
    method: str, cells: Sequence[CellRow], way: tuple[Transmission, float], alone: float | None
) -> series.PlotLine:
    """Return accuracy over the mean time at which the seeds end each round."""
    line = series.over_rounds(method, cells, lambda cell: cell.accuracy)
    clocks = [time_axis(cell, *way, training=alone) for cell in cells]
    at = [fmean(clock[int(number) - 1] for clock in clocks) for number in line.x]
    return series.PlotLine(method, tuple(at), line.mean, line.error)


def _spent(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of computation and transmission time."""
    methods, alone = series.by_method(cells), solo_training_seconds(cells)
    with panels(len(RATES), size=(3.4, 2.8)) as drawn:
        for axes, rate in zip(drawn.axes, RATES, strict=True):
            for place, own in enumerate(methods.values()):
                parts = (
                    fmean(_computed(cell, alone) for cell in own),
                    fmean(sum(transmission_of(cell, Transmission.COUNTED, rate)) for cell in own),
                )
                base = 0.0
                for height, hatch, what in zip(
                    parts, HATCHES, ("computation", "transmission"), strict=True
                ):
                    axes.bar(
                        place,
                        height,
                        bottom=base,
                        hatch=hatch,
                        color="0.8" if hatch else COLOURS[0],
                        edgecolor="black",
                        linewidth=0.5,
                        label=what,
                    )
                    base += height
            axes.set_xticks(range(len(methods)), list(methods))
            slant_names(axes)
            axes.set(title=f"{rate:g} Mbit/s", ylabel="seconds of the whole run")
        sentence = "What the simulated time goes into, by the bytes that are really sent."
        return write(drawn, folder, f"{name}-spent", caption_of(sentence, name, cells))


def _computed(cell: CellRow, alone: float | None) -> float:
    each = computation_of(cell, alone)
    return (each.training + each.scoring) * cell.rounds


def _growth(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw scoring time and bytes against n, C and |w|, on logarithmic axes."""
    start = next((sizes_of(cell) for cell in cells if cell.axes[AXIS] == BASE), None)
    if start is None:
        return []
    with panels(3, size=(3.4, 2.8)) as drawn:
        _grow(drawn, cells, start)
        sentence = (
            "Seconds that all members take to score, and bytes on the busiest link, of which one "
            "size varies at a time."
        )
        return write(drawn, folder, name, caption_of(sentence, name, cells))


def _grow(drawn: Panels, cells: Sequence[CellRow], start: tuple[float, float, float]) -> None:
    titles = ("n, training clients", "C, members", "bytes of a model")
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
        draw_line(axes, series.line_through("scoring, seconds a round", seconds), 0)
        draw_line(axes, series.line_through("busiest link, MB a round", sent), 1)
        axes.set(xscale="log", yscale="log", title=title)
        measured = sorted({*seconds, *sent})
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
