"""The numbers behind the figures: means over seeds with their standard errors, from rows alone.

Nothing but seeds is ever averaged: cells that differ in method, condition or the label of an axis
are in different lines or panels.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from clients.experiments.statistics import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clients.experiments.rows import CellRow

MOST_LINES = 9
"""Lines in one panel; more are cut into several panels or figures."""

FEW_SCENARIOS = 2
"""With so many scenarios a method may have been run in one of them alone."""

ACCURACY_BINS = (0.2, 0.4, 0.6, 0.8)
"""Where the paper's figure of clients by accuracy cuts: five classes of clients."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line of a figure.

    Attributes:
        name: in the legend.
        x: where it was measured, ascending.
        mean: over the seeds that were measured there.
        error: one standard error of each mean; None where a single seed was measured.
    """

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    error: tuple[float | None, ...]

    def after(self, x: float) -> PlotLine:
        """Return the part of the line beyond x."""
        start = bisect_right(self.x, x)
        return PlotLine(self.name, self.x[start:], self.mean[start:], self.error[start:])

    def thinned(self, most: int) -> PlotLine:
        """Return the line with at most `most` points, evenly chosen, the last among them.

        Args:
            most: at least 1.
        """
        step = -(-len(self.x) // most)
        if step <= 1:
            return self
        selected = slice((len(self.x) - 1) % step, None, step)
        return PlotLine(self.name, self.x[selected], self.mean[selected], self.error[selected])


@dataclass(frozen=True, slots=True)
class AxisScale:
    """An axis of an experiment as the x axis of a panel.

    Attributes:
        name: of the axis.
        positions: x of each label: its number, where all labels are numbers, and else its place.
        is_numeric: whether x is the number that the label says.
    """

    name: str
    positions: dict[str, float]
    is_numeric: bool

    @classmethod
    def of(cls, cells: Iterable[CellRow], name: str) -> AxisScale:
        """Return the scale of an axis of some cells."""
        labels = swept_axes(cells)[name]
        numbers = {label: _number(label) for label in labels}
        values = {label: value for label, value in numbers.items() if value is not None}
        if len(set(values.values())) == len(labels):
            return cls(name, values, is_numeric=True)
        places = {label: float(place) for place, label in enumerate(labels)}
        return cls(name, places, is_numeric=False)


def _number(label: str) -> float | None:
    try:
        value = float(label)
    except ValueError:
        return None
    return value if isfinite(value) else None


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One panel of a figure.

    Attributes:
        title: the condition, and the labels of those axes by which lines do not differ.
        lines: cells by the name of their line; those of one line differ in the seed alone, or in
            the label of the axis along which they are drawn.
    """

    title: str
    lines: dict[str, list[CellRow]]

    @property
    def cells(self) -> list[CellRow]:
        """All cells of the panel."""
        return [cell for own in self.lines.values() for cell in own]


def panels_of(cells: Sequence[CellRow], along: str | None = None) -> list[PlotPanel]:
    """Return the panels of a figure: one for each condition, a line for each method.

    Axes with several labels are told apart by lines, as long as a panel has at most `MOST_LINES`
    of them, and else by panels.

    Args:
        cells: of one experiment.
        along: the axis along which lines are drawn; None for lines over something else.
    """
    in_lines: list[str] = []
    in_panels: list[str] = []
    count = len(by_method(cells))
    for axis, labels in swept_axes(cells).items():
        if axis != along and len(labels) > 1:
            fits = count * len(labels) <= MOST_LINES
            (in_lines if fits else in_panels).append(axis)
            count *= len(labels) if fits else 1
    panels = grouped(cells, lambda cell: scenario_name(cell, in_panels))
    return [
        PlotPanel(title, grouped(own, lambda cell: _named(cell.method, cell, in_lines)))
        for title, own in panels.items()
    ]


def well_filled(cells: Sequence[CellRow]) -> tuple[list[CellRow], list[str]]:
    """Return the cells of methods that were run in more than one of several scenarios.

    A column of a table that would have one number is left out of it.

    Args:
        cells: of one experiment.

    Returns:
        Their cells, and the methods that are left out.
    """
    scenarios = {
        method: {scenario_name(cell, cell.axes) for cell in own if cell.final is not None}
        for method, own in by_method(cells).items()
    }
    if len(set().union(*scenarios.values())) <= FEW_SCENARIOS:
        return list(cells), []
    sparse = [method for method, own in scenarios.items() if len(own) <= 1]
    if len(sparse) == len(scenarios):
        return list(cells), []
    return [cell for cell in cells if cell.method not in sparse], sparse


def places_of(panels: Iterable[PlotPanel]) -> dict[str, int]:
    """Return the place of each line in the figure, which says its style in all panels."""
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    return {name: place for place, name in enumerate(names)}


def swept_axes(cells: Iterable[CellRow]) -> dict[str, list[str]]:
    """Return the labels of each axis, both in the order in which they come first."""
    axes: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, label in cell.axes.items():
            axes.setdefault(axis, {})[label] = None
    return {axis: list(labels) for axis, labels in axes.items()}


def figures_of(
    file: str, cells: Sequence[CellRow], along: str | None = None
) -> list[tuple[str, PlotPanel]]:
    """Return what is drawn as several figures: the file of each panel, numbered if there are more.

    Args:
        file: name of the only file.
        cells: of one experiment.
        along: as in `panels_of`.
    """
    panels = panels_of(cells, along)
    if len(panels) == 1:
        return [(file, panels[0])]
    return [(f"{file}-{number}", panel) for number, panel in enumerate(panels, start=1)]


def scenario_name(cell: CellRow, axes: Iterable[str]) -> str:
    """Return a cell's condition with its labels on some axes."""
    return _named(cell.condition, cell, axes)


def _named(name: str, cell: CellRow, axes: Iterable[str]) -> str:
    return ", ".join([name, *(f"{axis} = {cell.axes[axis]}" for axis in axes)])


def by_method(cells: Iterable[CellRow]) -> dict[str, list[CellRow]]:
    """Return the cells of each method, methods in the order in which they come first."""
    return grouped(cells, lambda cell: cell.method)


def grouped(cells: Iterable[CellRow], key: Callable[[CellRow], str]) -> dict[str, list[CellRow]]:
    """Return the cells of each name, names in the order in which they come first."""
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups


def over_rounds(
    name: str, cells: Sequence[CellRow], of: Callable[[CellRow], Sequence[float | None]]
) -> PlotLine:
    """Return a number over rounds, from 1, at those rounds where every seed that got there has it.

    A seed whose model has left the numbers has none from there on: the mean of the others would
    flatter, and the line ends.
    """
    series = [of(cell) for cell in cells]
    points = {}
    for place in range(max((len(values_of_seed) for values_of_seed in series), default=0)):
        there = [values_of_seed[place] for values_of_seed in series if place < len(values_of_seed)]
        values = [value for value in there if value is not None]
        points[place + 1.0] = values if len(values) == len(there) else []
    return line_through(name, points)


def line_through(name: str, points: Mapping[float, Sequence[float]]) -> PlotLine:
    """Return the line through the means of some points, without those that have no value."""
    positions = sorted(x for x, values in points.items() if values)
    estimates = [mean_and_error(points[x]) for x in positions]
    return PlotLine(
        name, tuple(positions), tuple(e.mean for e in estimates), tuple(e.error for e in estimates)
    )


def along_axis(
    name: str, cells: Sequence[CellRow], axis: AxisScale, of: Callable[[CellRow], float | None]
) -> PlotLine:
    """Return a number of each cell along an axis."""
    points: dict[float, list[float]] = {}
    for cell in cells:
        value = of(cell)
        if value is not None:
            points.setdefault(axis.positions[cell.axes[axis.name]], []).append(value)
    return line_through(name, points)


def share_at_most(
    name: str, cells: Sequence[CellRow], of: Callable[[CellRow], Sequence[float]]
) -> PlotLine:
    """Return which share of the clients has at most x, at every x that some client has."""
    ordered = [sorted(of(cell)) for cell in cells]
    steps = sorted({value for values in ordered for value in values})
    filled = [values for values in ordered if values]
    return line_through(
        name, {x: [bisect_right(values, x) / len(values) for values in filled] for x in steps}
    )


def times_by_accuracy(name: str, cells: Sequence[CellRow]) -> PlotLine:
    """Return how often clients were aggregated, by how accurate the last model is on them.

    Args:
        name: in the legend.
        cells: one of each seed, with accuracy per client.

    Returns:
        At the middle of each of five classes of accuracy the mean, over seeds, of the mean number
        of times that a client of the class was aggregated.
    """
    points: dict[float, list[float]] = {}
    for cell in cells:
        classes: dict[int, list[int]] = {}
        accuracies = cell.client_accuracy or ()
        for accuracy, times in zip(accuracies, cell.times_aggregated, strict=False):
            if accuracy is not None:
                classes.setdefault(bisect_right(ACCURACY_BINS, accuracy), []).append(times)
        for place, counts in classes.items():
            points.setdefault(0.1 + 0.2 * place, []).append(sum(counts) / len(counts))
    return line_through(name, points)


def times_by_samples(name: str, cells: Sequence[CellRow], classes: int = 5) -> PlotLine:
    """Return how often clients were aggregated, by how many samples they have."""
    points: dict[float, list[float]] = {}
    for cell in cells:
        clients = sorted(range(len(cell.samples)), key=lambda client: cell.samples[client])
        for part in range(classes):
            chosen = clients[part * len(clients) // classes : (part + 1) * len(clients) // classes]
            counts = [cell.times_aggregated[client] for client in chosen]
            if counts:
                points.setdefault(part + 1.0, []).append(sum(counts) / len(counts))
    return line_through(name, points)


def floor_of(cells: Iterable[CellRow]) -> float | None:
    """Return the accuracy of always answering the commonest class, averaged over the seeds."""
    floors = [cell.floor for cell in cells if cell.floor is not None]
    return mean_and_error(floors).mean if floors else None
