"""Figures of clients: who is aggregated how often, and where the attackers are."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import draw_floor, draw_line, name_ticks, panels
from clients.experiments.drawing.figure_file import caption_of, write
from clients.experiments.statistics import mean_and_error, spearman

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow

COUNTS: tuple[tuple[str, Callable[[CellRow], Sequence[int]]], ...] = (
    ("N1, training", lambda cell: cell.malicious_trained),
    ("N2, on the committee", lambda cell: cell.malicious_members or ()),
    ("N3, aggregated", lambda cell: cell.malicious_aggregated),
)
"""The paper's counts of attackers."""


def draw_clients(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of clients: aggregations, accuracy, and one against the other."""
    paths = []
    for file, panel in series.figures_of(f"{name}-clients", cells):
        has_accuracy = any(cell.client_accuracy is not None for cell in panel.cells)
        with panels(3 if has_accuracy else 1) as drawn:
            for place, (line, own) in enumerate(panel.lines.items()):
                times = series.share_at_most(line, own, lambda cell: cell.times_aggregated)
                draw_line(drawn.axes[0], times, place)
                measured = [cell for cell in own if cell.client_accuracy is not None]
                if measured:
                    shares = series.share_at_most(line, measured, accuracies)
                    draw_line(drawn.axes[1], shares, place)
                    draw_line(drawn.axes[2], series.times_by_accuracy(line, measured), place)
            drawn.axes[0].set(
                title="clients aggregated at most x times", xlabel="x", ylabel="share of clients"
            )
            if has_accuracy:
                drawn.axes[1].set(
                    title="clients with accuracy at most x", xlabel="x", ylabel="share of clients"
                )
                drawn.axes[2].set(
                    title="times aggregated, by accuracy",
                    xlabel="client's accuracy, classes of .2",
                    ylabel="times aggregated",
                )
            sentence = (
                "How often clients are aggregated, and how accurate the last model is on them."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def draw_samples(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw how often clients are aggregated, by their number of samples."""
    shown = series.panels_of(cells)
    places = series.places_of(shown)
    with panels(len(shown), sharey=True, size=(4.2, 2.8)) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                draw_line(axes, series.times_by_samples(line, own), places[line])
            axes.set(title=panel.title, xlabel="fifth of the clients, fewest samples first")
            axes.set_xticks(range(1, 6))
        drawn.axes[0].set_ylabel("times aggregated")
        ranks = "; ".join(f"{panel.title}: {_correlations(panel.lines)}" for panel in shown)
        sentence = (
            "How often clients are aggregated, by their number of samples. Spearman's correlation "
            f"of the two, ± standard error: {ranks}."
        )
        return write(drawn, folder, f"{name}-samples", caption_of(sentence, name, cells))


def draw_attackers(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the attackers in a round along the first axis, a panel for each method and condition."""
    axis = series.AxisScale.of(cells, next(iter(cells[0].axes)))
    shown = series.panels_of(cells, along=axis.name)
    groups = {
        line if len(shown) == 1 else f"{line}, {panel.title}": own
        for panel in shown
        for line, own in panel.lines.items()
    }
    with panels(len(groups) + 1, sharex=True) as drawn:
        for axes, (title, own) in zip(drawn.axes, groups.items(), strict=False):
            for place, (what, of) in enumerate(COUNTS):
                draw_line(axes, series.along_axis(what, own, axis, _mean_of(of)), place)
            axes.set(title=f"{title}: attackers in a round", ylabel="clients")
        last = drawn.axes[-1]
        for place, (title, own) in enumerate(groups.items(), start=len(COUNTS)):
            line = series.along_axis(f"{title}, accuracy", own, axis, lambda cell: cell.final)
            draw_line(last, line, place)
        draw_floor(last, series.floor_of(cells))
        last.set(title="final test accuracy", ylabel="test accuracy")
        for axes in drawn.axes:
            name_ticks(axes, axis)
        sentence = "Attackers in a round, mean over its rounds, and what becomes of the model."
        return write(drawn, folder, f"{name}-attackers", caption_of(sentence, name, cells))


def accuracies(cell: CellRow) -> list[float]:
    """Return the accuracy on every client that has test samples, to two decimals."""
    # Hundredths: a step for each fraction that a client's few samples can have would not be seen.
    return [round(value, 2) for value in cell.client_accuracy or () if value is not None]


def correlation(cell: CellRow) -> float | None:
    """Return Spearman's correlation of times aggregated and number of samples."""
    return spearman(cell.times_aggregated, cell.samples) if cell.samples else None


def _correlations(lines: dict[str, list[CellRow]]) -> str:
    parts = []
    for line, own in lines.items():
        values = [value for value in map(correlation, own) if value is not None]
        if values:
            mean = mean_and_error(values)
            error = "" if mean.error is None else f" ± {mean.error:.2f}"
            parts.append(f"{line} {mean.mean:+.2f}{error}")
    return ", ".join(parts) or "none"


def _mean_of(counts: Callable[[CellRow], Sequence[int]]) -> Callable[[CellRow], float | None]:
    """Return what gives the mean of a count over a cell's rounds; None without any."""
    return lambda cell: fmean(values) if (values := counts(cell)) else None
