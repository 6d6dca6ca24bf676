"""The style of all figures, on matplotlib. Lines differ by dashes and markers before colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from clients.experiments.series import Estimate, PlotLine
from ledger.io.extras import require_extra
from ledger.io.home import write_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (5, 1.5, 1, 1.5), (8, 2))
MARKERS = "osD^vXP*<>"
POINTS = 20
"""Points of a line: of more, every second, third ... is drawn, and the last."""
_SETTINGS: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "svg.hashsalt": "cmfl",  # names inside the file follow from its content, not from chance
    "svg.fonttype": "none",
}
LEAST_SPAN = 0.05
"""Span of a table's shades, and least height of a zoomed panel: noise looks like noise."""
SETTLED = 0.2
"""Share of a curve, at its start, that a zoomed panel does not have to show."""


@dataclass(frozen=True, slots=True)
class Panels:
    """A figure of matplotlib and its axes, row by row."""

    figure: Figure
    axes: tuple[Axes, ...]
    columns: int

    def name_y(self, name: str) -> None:
        """Name the y axes of the left panels."""
        for axes in self.axes[:: self.columns]:
            axes.set_ylabel(name)


@contextmanager
def panels(
    count: int, columns: int = 3, size: tuple[float, float] = (3.4, 2.6), **shared: Any
) -> Iterator[Panels]:
    """Give a figure with panels of a size in inches, drawn in the one style."""
    require_extra("plots", "figures need")
    from matplotlib import rc_context  # noqa: PLC0415 - the extra `plots`, and slow to load
    from matplotlib.figure import Figure  # noqa: PLC0415

    columns = min(columns, count)
    lines = ceil(count / columns)
    with rc_context(_SETTINGS):
        figure = Figure((size[0] * columns, size[1] * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False, **shared).flatten().tolist()
        for unused in axes[count:]:
            figure.delaxes(unused)
        yield Panels(figure, tuple(axes[:count]), columns)


def write(drawn: Panels, folder: Path, name: str, caption: str) -> list[Path]:
    """Write a figure as SVG and PNG, one legend above its panels and its caption below."""
    figure = drawn.figure
    named: dict[str, Any] = {}
    for axes in drawn.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    width = max(figure.get_figwidth(), 6.8)
    text = fill(caption, int(15 * width), break_on_hyphens=False)
    figure.set_size_inches(width, figure.get_figheight() + 0.16 * (text.count("\n") + 2))
    if named:
        columns = max(1, int(width / max(1.7, 0.6 + 0.08 * max(map(len, named)))))
        figure.legend(named.values(), named, loc="outside upper center", ncols=columns)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8)
    paths = []
    metadata = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
    for ending, facts in metadata.items():
        drawing = BytesIO()
        figure.savefig(drawing, format=ending[1:], dpi=110, metadata=facts)
        paths.append(folder / f"{name}{ending}")
        write_named(paths[-1], drawing.getvalue())
    return paths


def draw_line(axes: Axes, line: PlotLine, place: int) -> None:
    """Draw a line with its band of one standard error, in the style of its place in the figure."""
    count = len(line.x)
    chosen = (
        slice((count - 1) % -(-count // POINTS), None, -(-count // POINTS)) if count else slice(0)
    )
    x, mean, error = line.x[chosen], line.mean[chosen], line.error[chosen]
    if not x:
        return
    style = line_style(place)
    every = max(1, len(x) // 5)
    axes.plot(x, mean, label=line.name, markevery=(place % every, every), **style)
    if any(error):
        low, high = (
            [m + sign * (e or 0.0) for m, e in zip(mean, error, strict=True)] for sign in (-1, 1)
        )
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def line_style(place: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line; no two of the first ten share the last two."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "dashes": DASHES[place % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)],
    }


def draw_bar(axes: Axes, place: int, height: Estimate, **more: Any) -> None:
    """Draw a bar with a whisker of one standard error; a single seed has none."""
    style = {"color": COLOURS[place % len(COLOURS)], "edgecolor": "black", "linewidth": 0.5}
    whisker = {"yerr": height.error, "capsize": 3} if height.error is not None else {}
    axes.bar(place, height.mean, **whisker, **style | more)  # type: ignore[arg-type]


def zoom(
    axes: Axes, lines: Iterable[PlotLine], floor: float | None, settled: float = SETTLED
) -> None:
    """Let a panel show where its lines are once they have settled, and the floor if it is there."""
    drawn = [line for line in lines if line.x]
    start = settled * max((line.x[-1] for line in drawn), default=0.0)
    ends = [
        mean + sign * (error or 0.0)
        for line in drawn
        for x, mean, error in zip(line.x, line.mean, line.error, strict=True)
        if x >= start
        for sign in (-1, 1)
    ]
    if not ends:
        return
    low, high = min(ends), max(ends)
    margin = max(0.05 * (high - low), (LEAST_SPAN - (high - low)) / 2, 0.0)
    axes.set_ylim(low - margin, high + margin)
    if floor is not None and low - margin <= floor <= high + margin:
        draw_floor(axes, floor)


def draw_floor(axes: Axes, floor: float | None) -> None:
    """Draw the accuracy of always answering the most frequent class, if there is one."""
    if floor is not None:
        axes.axhline(floor, color="0.35", linewidth=0.9, linestyle=":", label="majority")


def draw_table(
    axes: Axes,
    table: Sequence[Sequence[float | None]],
    names: tuple[Sequence[str], Sequence[str]],
    texts: Sequence[Sequence[str]],
    shades: dict[str, Any],
) -> None:
    """Draw a table, row by row, whose cells are coloured by their number.

    `names` are of the rows and of the columns, `shades` the options of matplotlib's `imshow`.
    """
    values = [[float("nan") if value is None else value for value in row] for row in table]
    image = axes.imshow(values, aspect="auto", interpolation="nearest", **shades)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            red, green, blue, _ = image.to_rgba(value)  # type: ignore[arg-type]
            ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
            axes.text(x, y, texts[y][x], ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(len(names[1])), names[1])
    axes.set_yticks(range(len(names[0])), names[0])
    axes.grid(visible=False)
    axes.tick_params(length=0)


def count_rounds(axes: Axes) -> None:
    """Let a panel's x axis count rounds: whole numbers only."""
    axes.set_xlabel("round")
    axes.locator_params(axis="x", nbins=6, integer=True)


def name_ticks(axes: Axes, axis: str, positions: Mapping[str, float]) -> None:
    """Let a panel's x axis be an axis of an experiment, with its labels."""
    axes.set_xlabel(axis)
    axes.set_xticks(list(positions.values()), list(positions))


def slant_names(axes: Axes) -> None:
    """Let the names below a panel slant, so that long ones do not meet."""
    for label in axes.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor")
