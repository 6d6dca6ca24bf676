"""The numbers behind figures and tables: means over seeds with their standard errors, from rows.

Only seeds are averaged. Differences are taken seed by seed: data, attackers and first model
are the same on both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from clients.experiments.rows import CellRow

Lines: TypeAlias = dict[str, list[CellRow]]
"""Cells by the name of their line, which differ in the seed alone, or along one axis."""
Points: TypeAlias = Mapping[float, Sequence[float]]  # the values at each x, one for each seed
MOST_LINES = 9  # lines in one panel; more are cut into several panels or figures
FEW_SCENARIOS = 2  # with so many scenarios a method may have been run in one of them alone


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over repetitions and its standard error, None for a single value."""

    mean: float
    error: float | None
    count: int


def mean_and_error(values: Sequence[float]) -> Estimate:
    """Return the mean, and s / sqrt(n) with s² = Σ (x − mean)² / (n − 1)."""
    count = len(values)
    if not count:
        raise ValueError("a mean of no values")
    mean = fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    squares = fsum((value - mean) ** 2 for value in values)
    return Estimate(mean, sqrt(squares / (count - 1) / count), count)


def paired(own: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Return the mean of own − theirs over the seeds that both have; None without any."""
    seeds = sorted(own.keys() & theirs.keys())
    return mean_and_error([own[seed] - theirs[seed] for seed in seeds]) if seeds else None


def spearman(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None where one side has no two different values."""
    from scipy.stats import spearmanr  # noqa: PLC0415 - slow to import

    if min(len(set(values)), len(set(others))) < 2:
        return None
    return float(spearmanr(values, others).statistic)


def panels_of(cells: Sequence[CellRow], along: str | None = None) -> dict[str, Lines]:
    """Return the panels of a figure by their titles: one a condition, with a line a method.

    Lines tell axes with several labels apart as long as a panel has at most `MOST_LINES` of them,
    and else panels do. `along` is the axis along which lines are drawn.
    """
    in_lines: list[str] = []
    in_panels: list[str] = []
    count = len(by_method(cells))
    for axis, labels in varied_axes(cells).items():
        if axis != along:
            fits = count * len(labels) <= MOST_LINES
            (in_lines if fits else in_panels).append(axis)
            count *= len(labels) if fits else 1
    panels = grouped(cells, lambda cell: with_labels(cell.condition, cell, in_panels))
    return {
        title: grouped(own, lambda cell: with_labels(cell.method, cell, in_lines))
        for title, own in panels.items()
    }


def cells_of(lines: Lines) -> list[CellRow]:
    """Return all cells of a panel."""
    return [cell for own in lines.values() for cell in own]


def well_filled(cells: Sequence[CellRow]) -> tuple[list[CellRow], list[str]]:
    """Return the cells of methods that ran in several scenarios, and the names of the others."""
    scenarios = {
        method: {scenario_name(cell) for cell in own if cell.final is not None}
        for method, own in by_method(cells).items()
    }
    sparse = [method for method, own in scenarios.items() if len(own) <= 1]
    few = len(set().union(*scenarios.values())) <= FEW_SCENARIOS
    if few or len(sparse) == len(scenarios):
        return list(cells), []
    return [cell for cell in cells if cell.method not in sparse], sparse


def places_of(panels: Mapping[str, Lines]) -> dict[str, int]:
    """Return the place of each line in the figure, which decides its style in all panels."""
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    return {name: place for place, name in enumerate(names)}


def swept_axes(cells: Iterable[CellRow]) -> dict[str, list[str]]:
    """Return the labels of each axis, both in their order of appearance."""
    axes: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, label in cell.axes.items():
            axes.setdefault(axis, {})[label] = None
    return {axis: list(labels) for axis, labels in axes.items()}


def varied_axes(cells: Iterable[CellRow]) -> dict[str, list[str]]:
    """Return the labels of each axis that has several of them."""
    return {axis: labels for axis, labels in swept_axes(cells).items() if len(labels) > 1}


def positions_of(cells: Iterable[CellRow], axis: str) -> dict[str, float]:
    """Return x of each label of an axis: its number, if all labels are numbers; else its place."""
    labels = swept_axes(cells)[axis]
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        numbers = {}
    if len(set(numbers.values())) == len(labels) and all(map(isfinite, numbers.values())):
        return numbers
    return {label: float(place) for place, label in enumerate(labels)}


def scenario_name(cell: CellRow) -> str:
    """Return a cell's condition with all its labels."""
    return with_labels(cell.condition, cell, cell.axes)


def with_labels(name: str, cell: CellRow, axes: Iterable[str]) -> str:
    """Return a name with a cell's labels on some axes."""
    return ", ".join([name, *(f"{axis} = {cell.axes[axis]}" for axis in axes)])


def by_method(cells: Iterable[CellRow]) -> Lines:
    """Return the cells of each method, methods in their order of appearance."""
    return grouped(cells, attrgetter("method"))


def grouped(cells: Iterable[CellRow], key: Callable[[CellRow], str]) -> Lines:
    """Return the cells of each name, names in their order of appearance."""
    groups: Lines = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups


def finals_of(cells: Iterable[CellRow]) -> list[float]:
    """Return the final accuracies that were measured."""
    return [cell.final for cell in cells if cell.final is not None]


def floor_of(cells: Iterable[CellRow]) -> float | None:
    """Return the accuracy of always answering the most frequent class, averaged over the seeds."""
    floors = [cell.floor for cell in cells if cell.floor is not None]
    return mean_and_error(floors).mean if floors else None


class PlotLine(NamedTuple):
    """A line of a figure: x ascending, means over seeds, and standard errors, 0 for one seed."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...]


def line_through(name: str, points: Points) -> PlotLine:
    """Return the line through the means of some points; points without a value are left out."""
    positions = sorted(x for x, values in points.items() if values)
    found = [mean_and_error(points[x]) for x in positions]
    means, errors = (of.mean for of in found), (of.error or 0.0 for of in found)
    return PlotLine(name, tuple(positions), tuple(means), tuple(errors))


def over_rounds(
    name: str, cells: Sequence[CellRow], of: Callable[[CellRow], Sequence[float | None]]
) -> PlotLine:
    """Return a number over rounds, up to where a seed's model diverges: others would flatter."""
    series = [of(cell) for cell in cells]
    points = {}
    for place in range(max(map(len, series), default=0)):
        there = [values[place] for values in series if place < len(values)]
        measured = [value for value in there if value is not None]
        points[place + 1.0] = measured if len(measured) == len(there) else []
    return line_through(name, points)


def along_axis(
    name: str,
    cells: Sequence[CellRow],
    scale: tuple[str, Mapping[str, float]],
    of: Callable[[CellRow], float | None],
) -> PlotLine:
    """Return a number of each cell along an axis, given as its name and `positions_of` it."""
    axis, positions = scale
    points = defaultdict(list)
    for cell in cells:
        value = of(cell)
        if value is not None:
            points[positions[cell.axes[axis]]].append(value)
    return line_through(name, points)


def share_at_most(
    name: str, cells: Sequence[CellRow], of: Callable[[CellRow], Sequence[float]]
) -> PlotLine:
    """Return the share of the clients that have at most x, at every x that some client has."""
    filled = [values for values in (sorted(of(cell)) for cell in cells) if values]
    steps = {value for values in filled for value in values}
    return line_through(
        name, {x: [bisect_right(values, x) / len(values) for values in filled] for x in steps}
    )


def times_by_accuracy(name: str, cells: Sequence[CellRow]) -> PlotLine:
    """Return how often clients are aggregated, by five classes of the last model's accuracy."""
    points = defaultdict(list)
    for cell in cells:
        classes = defaultdict(list)
        accuracies = cell.client_accuracy or ()
        for accuracy, times in zip(accuracies, cell.times_aggregated, strict=False):
            if accuracy is not None:
                classes[bisect_right((0.2, 0.4, 0.6, 0.8), accuracy)].append(times)
        for place, counts in classes.items():
            points[0.1 + 0.2 * place].append(sum(counts) / len(counts))
    return line_through(name, points)


def times_by_samples(name: str, cells: Sequence[CellRow], classes: int = 5) -> PlotLine:
    """Return how often clients are aggregated, by classes of their number of samples."""
    points = defaultdict(list)
    for cell in cells:
        clients = np.argsort(cell.samples, kind="stable")
        bounds = [part * len(clients) // classes for part in range(1, classes)]
        for part, chosen in enumerate(np.split(clients, bounds), start=1):
            if len(chosen):
                counts = [cell.times_aggregated[client] for client in chosen]
                points[float(part)].append(sum(counts) / len(counts))
    return line_through(name, points)
