"""The style of all figures. Lines differ by dashes and markers before colour."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from ledger.io.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clients.experiments.drawing.series import AxisScale, PlotLine
    from clients.experiments.statistics import Estimate

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (5, 1.5, 1, 1.5), (8, 2))
MARKERS = "osD^vXP*<>"
MARKS = 5
"""Markers on a line, so that they tell lines apart and hide none."""
POINTS = 20
"""Points of a line: of more, every second, third ... is drawn, and the last."""

_SETTINGS: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    # Names inside the file follow from its content and this word, not from chance.
    "svg.hashsalt": "cmfl",
    "svg.fonttype": "none",
}

LEAST_SPAN = 0.05
"""Span of the shades of a table: smaller differences do not look like large ones."""
FULL_LOSS = 0.3
"""A difference from which a cell's colour is full; below, it goes with the root."""
LOSS, GAIN = (0.70, 0.09, 0.17), (0.13, 0.40, 0.67)
"""Colours of a full loss and a full gain, red and blue."""
DARK = 0.5
"""Brightness below which text is white."""

SETTLED = 0.2
"""Share of a curve, at its start, that a zoomed panel does not have to show."""
LEAST_ZOOM = 0.02
"""Least height of a zoomed panel: noise does not look like a difference."""

Shade = tuple[float, tuple[float, float, float]]
"""How dark a cell is, from 0 to 1, and its colour."""


@dataclass(frozen=True, slots=True)
class Panels:
    """A figure on which something can be drawn.

    Attributes:
        figure: matplotlib's.
        axes: of each panel, row by row.
        columns: panels per row.
    """

    figure: Figure
    axes: tuple[Axes, ...]
    columns: int

    def name_y(self, name: str) -> None:
        """Name the y axes of the left panels."""
        for axes in self.axes[:: self.columns]:
            axes.set_ylabel(name)


@contextmanager
def panels(
    count: int,
    columns: int = 3,
    size: tuple[float, float] = (3.4, 2.6),
    *,
    sharex: bool = False,
    sharey: bool = False,
) -> Iterator[Panels]:
    """Give a figure with panels, drawn in the one style.

    Args:
        count: of the panels.
        columns: panels per row.
        size: of one panel, width and height in inches.
        sharex: whether all have the same x axis.
        sharey: whether all have the same y axis.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    require_extra("plots", "figures need")
    from matplotlib import rc_context  # noqa: PLC0415 - the extra `plots`, and slow to load
    from matplotlib.figure import Figure  # noqa: PLC0415

    columns = min(columns, count)
    lines = ceil(count / columns)
    with rc_context(_SETTINGS):
        figure = Figure((size[0] * columns, size[1] * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False, sharex=sharex, sharey=sharey)
        axes = [panel for line in grid for panel in line]
        for unused in axes[count:]:
            figure.delaxes(unused)
        yield Panels(figure, tuple(axes[:count]), columns)


def draw_line(axes: Axes, line: PlotLine, place: int) -> None:
    """Draw a line with its band of one standard error.

    Args:
        axes: where.
        line: what; nothing is drawn of one without points.
        place: of the line in its figure, which says its dashes, marker and colour.
    """
    if not line.x:
        return
    line = line.thinned(POINTS)
    style = line_style(place)
    every = max(1, len(line.x) // MARKS)
    axes.plot(line.x, line.mean, label=line.name, markevery=(place % every, every), **style)
    pairs = zip(line.mean, line.error, strict=True)
    bands = [(mean, 0.0 if error is None else error) for mean, error in pairs]
    if any(error for _, error in bands):
        low, high = [m - e for m, e in bands], [m + e for m, e in bands]
        axes.fill_between(line.x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def line_style(place: int) -> dict[str, Any]:
    """Return dashes, marker and colour of a line; no two of the first ten share the first two.

    Args:
        place: of the line in its figure, from 0.
    """
    return {
        "color": COLOURS[place % len(COLOURS)],
        "dashes": DASHES[place % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)],
    }


def draw_bar(axes: Axes, place: int, height: Estimate, **more: Any) -> None:
    """Draw a bar with a whisker of one standard error; a single seed has none.

    Args:
        axes: where.
        place: x of the bar, and its colour.
        height: mean over seeds, and its error.
        more: options of matplotlib's bar.
    """
    style: dict[str, Any] = {
        "color": COLOURS[place % len(COLOURS)],
        "edgecolor": "black",
        "linewidth": 0.5,
    }
    axes.bar(place, height.mean, **style | more)
    if height.error is not None:
        top = more.get("bottom", 0.0) + height.mean
        axes.errorbar(place, top, height.error, color="black", capsize=3, linewidth=1)


def zoom(axes: Axes, lines: Iterable[PlotLine], floor: float | None) -> None:
    """Let a panel show where its lines are once they have settled, and the floor if it is there.

    Args:
        axes: where the lines are drawn.
        lines: with their bands.
        floor: accuracy of always answering the commonest class; None if there is none.
    """
    drawn = [line for line in lines if line.x]
    if not drawn:
        return
    start = SETTLED * max(line.x[-1] for line in drawn)
    ends = [
        mean + sign * (error or 0.0)
        for line in drawn
        for x, mean, error in zip(line.x, line.mean, line.error, strict=True)
        if x >= start
        for sign in (-1, 1)
    ]
    low, high = min(ends), max(ends)
    margin = max(0.05 * (high - low), (LEAST_ZOOM - (high - low)) / 2, 0.0)
    axes.set_ylim(low - margin, high + margin)
    if floor is not None and low - margin <= floor <= high + margin:
        draw_floor(axes, floor)


def draw_floor(axes: Axes, floor: float | None) -> None:
    """Draw the accuracy of always answering the commonest class, if there is one."""
    if floor is not None:
        axes.axhline(floor, color="0.35", linewidth=0.9, linestyle=(0, (1, 1)), label="majority")


def draw_table(
    axes: Axes,
    table: Sequence[Sequence[float | None]],
    names: tuple[Sequence[str], Sequence[str]],
    texts: Sequence[Sequence[str]] | None = None,
    shade_of: Callable[[float], Shade] | None = None,
) -> None:
    """Draw a table whose cells are the darker, the larger their number.

    Args:
        axes: where.
        table: numbers, row by row; None for a cell that there is none of.
        names: of the rows, and of the columns.
        texts: of the cells; the number to three decimals if not given.
        shade_of: the colour of a number; greys from the least to the largest if not given.
    """
    shade_of = shade_of or _greys([value for row in table for value in row if value is not None])
    for y, row in enumerate(table):
        for x, value in enumerate(row):
            shade, colour = (0.0, LOSS) if value is None else shade_of(value)
            mixed = tuple(round(1 - shade * (1 - part), 3) for part in colour)
            axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=mixed, linewidth=0)
            shown = "" if value is None else f"{value:.3f}"
            text = shown if texts is None else texts[y][x]
            ink = "white" if _brightness(mixed) < DARK else "black"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks([x + 0.5 for x in range(len(names[1]))], names[1])
    axes.set_yticks([y + 0.5 for y in range(len(names[0]))], names[0])
    axes.set(xlim=(0, len(names[1])), ylim=(len(names[0]), 0))
    axes.grid(visible=False)
    axes.tick_params(length=0)


def difference_shade(difference: float) -> Shade:
    """Return the colour of a difference: red for a loss, blue for a gain."""
    return min(1.0, (abs(difference) / FULL_LOSS) ** 0.5), LOSS if difference < 0 else GAIN


def _brightness(colour: Sequence[float]) -> float:
    """Return the perceived brightness of red, green and blue, from 0 to 1."""
    return sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), colour, strict=True))


def _greys(numbers: Sequence[float]) -> Callable[[float], Shade]:
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    span = max(high - low, LEAST_SPAN)
    return lambda value: (0.08 + 0.72 * (value - low) / span, (0.0, 0.0, 0.0))


def count_rounds(axes: Axes) -> None:
    """Let a panel's x axis count rounds: whole numbers only."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - as in `panels`

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def name_ticks(axes: Axes, scale: AxisScale) -> None:
    """Let a panel's x axis be an axis of an experiment, with its labels."""
    axes.set_xlabel(scale.name)
    axes.set_xticks(list(scale.positions.values()), list(scale.positions))


def slant_names(axes: Axes) -> None:
    """Let the names below a panel slant, so that long ones do not meet."""
    for label in axes.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor")
