"""The style and captions of all figures; lines differ by dashes and markers before colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.experiments import series
from clients.experiments.report import DASH, attack_text, rate_text
from clients.experiments.rows import CellRow
from clients.experiments.series import Estimate, PlotLine
from ledger.io.home import write_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (5, 1.5, 1, 1.5), (8, 2))
MARKERS = "osD^vXP*<>"
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "savefig.bbox": "tight",
    "savefig.dpi": 110,
    "svg.hashsalt": "cmfl",  # names inside the file follow from its content, not from chance
    "svg.fonttype": "none",
}
LEAST_SPAN = 0.05  # of a table's shades and of a zoomed panel's height: noise looks like noise
BANDS = "bands are one standard error"
SIGNS = "± is one standard error"
WHISKERS = "whiskers are one standard error"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure: what it shows in a sentence, the cells it is of, and how it shows errors."""

    figure: Figure
    sentence: str
    cells: Sequence[CellRow]
    errors: str = BANDS


def write(drawn: Drawn, path: Path, experiment: str) -> list[Path]:
    """Write a figure as SVG and PNG: one legend next to its panels, its caption below them."""
    figure = drawn.figure
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        figure.legend(named.values(), named, loc="outside right upper")
    caption = caption_of(drawn.sentence, experiment, drawn.cells, drawn.errors)
    figure.text(0.01, 0, caption, va="top", fontsize=8, wrap=True)
    paths = []
    for ending, facts in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
        drawing = BytesIO()
        figure.savefig(drawing, format=ending[1:], metadata=facts)
        paths.append(path.with_name(f"{path.name}{ending}"))
        write_named(paths[-1], drawing.getvalue())
    return paths


def caption_of(
    sentence: str, experiment: str, cells: Sequence[CellRow], errors: str = BANDS
) -> str:
    """Return a caption: attacks, learning rates, seeds, and a point that a reader can audit."""
    swept = series.swept_axes(cells)
    constant = [f"{axis} = {labels[0]}" for axis, labels in swept.items() if len(labels) == 1]
    parts = [sentence, attack_text(cells), *([f"{', '.join(constant)}."] if constant else [])]
    parts += [rate_text(cells), _seed_text(experiment, cells, errors)]
    recorded = next(((cell, cell.ledger) for cell in cells if cell.ledger is not None), None)
    if recorded is None:
        return " ".join([*parts, "No point of it is on a chain."])
    cell, at = recorded
    return " ".join(parts) + (
        f" On chain {at.chain_id}: {cell.cell} at {at.address}, head {at.head}, audit "
        f"{at.verdict}; again by: cmfl experiment audit {experiment} {cell.cell}"
    )


def _seed_text(experiment: str, cells: Iterable[CellRow], errors: str) -> str:
    places = series.grouped(cells, lambda cell: f"{cell.method}\n{series.scenario_name(cell)}")
    counts = [len({cell.seed for cell in own}) for own in places.values()]
    listed = ", ".join(map(str, sorted({cell.seed for own in places.values() for cell in own})))
    few, most = min(counts), max(counts)
    if most == 1:
        return f"Experiment {experiment}, seed {listed}: one seed a point, and so no errors."
    uneven = "" if few == most else f", {few} to {most} of them at a point"
    alone = "; a point with one seed has none" if few == 1 else ""
    return f"Experiment {experiment}, mean over seeds {listed}{uneven}; {errors}{alone}."


def new_figure(
    count: int, size: tuple[float, float], columns: int = 3, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with some panels, each of a size in inches, and its panels row by row."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - the extra `plots`, and slow to load

    columns = min(columns, count)
    lines = ceil(count / columns)
    width = max(6.8, size[0] * columns)  # room for the lines of a caption
    figure = Figure((width, size[1] * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, **shared).flatten().tolist()
    for unused in panels[count:]:
        figure.delaxes(unused)
    return figure, panels[:count]


def draw_line(axes: Axes, line: PlotLine, place: int) -> None:
    """Draw a line with its band of one standard error, in the style of its place in the figure."""
    if not line.x:
        return
    every = max(1, len(line.x) // 5)
    style: dict[str, Any] = {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "dashes": DASHES[place % len(DASHES)],
        "markevery": (place % every, every),
    }
    axes.plot(line.x, line.mean, label=line.name, **style)
    if any(line.error):
        mean, error = np.array(line.mean), np.array(line.error)
        band = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
        axes.fill_between(line.x, mean - error, mean + error, **band)


def draw_bar(axes: Axes, place: int, height: Estimate, **style: Any) -> None:
    """Draw a bar with a whisker of one standard error; a single seed has none."""
    if height.error is not None:
        style |= {"yerr": height.error, "capsize": 3}
    axes.bar(place, height.mean, edgecolor="black", linewidth=0.5, **style)


def zoom(axes: Axes, lines: Iterable[PlotLine], settled: float) -> None:
    """Let a panel show where its lines are once they have settled."""
    drawn = [np.array([line.x, line.mean, line.error]) for line in lines if line.x]
    if drawn:
        x, mean, error = np.concatenate(drawn, axis=1)
        is_late = x >= settled * x.max()
        low, high = (mean - error)[is_late].min(), (mean + error)[is_late].max()
        margin = max(0.05 * (high - low), (LEAST_SPAN - (high - low)) / 2)
        axes.set_ylim(low - margin, high + margin)


def draw_floor(axes: Axes, floor: float | None) -> None:
    """Draw the accuracy of always answering the most frequent class, if there is one."""
    if floor is not None:
        axes.axhline(floor, color="0.35", linewidth=0.9, linestyle=":", label="majority")


def draw_table(
    axes: Axes,
    table: Sequence[Sequence[Estimate | None]],
    names: tuple[Sequence[str], Sequence[str]],
    tone: Callable[[float], float] = float,
    **shades: Any,
) -> None:
    """Draw a table of estimates, coloured by a tone of their means if these are differences."""
    shape = "{:.3f}" if tone is float else "{:+.3f}"
    image = axes.imshow(
        [[nan if cell is None else tone(cell.mean) for cell in line] for line in table],
        aspect="auto",
        interpolation="nearest",
        **shades,
    )
    for y, line in enumerate(table):
        for x, cell in enumerate(line):
            red, green, blue, _ = image.to_rgba(nan if cell is None else tone(cell.mean))  # type: ignore[arg-type]
            ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
            text = DASH if cell is None else shape.format(cell.mean).replace("-", "\u2212")
            error = "" if cell is None or cell.error is None else f"\n±{cell.error:.3f}"
            axes.text(x, y, text + error, ha="center", va="center", fontsize=8, color=ink)
    axes.set_yticks(range(len(names[0])), names[0])
    axes.set_xticks(range(len(names[1])), names[1])
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
