"""Figure of kind `bound`: the bound of Theorem 1, the error, and phi_min by strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.paper.claims.theorem import STEP_SIZES, constant, path_of
from clients.experiments import series
from clients.experiments.canvas import (
    count_rounds,
    draw_line,
    panels,
    slant_names,
    write,
)
from clients.experiments.figures import caption_of
from clients.experiments.rows import CellRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"theorem": "the theorem's step sizes", "rate": "a constant rate"}


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment on Theorem 1."""
    methods = series.by_method(cells)
    with panels(len(STEP_SIZES) + 1, size=(3.6, 3.0)) as drawn:
        for axes, step_sizes in zip(drawn.axes, STEP_SIZES, strict=False):
            for place, (method, own) in enumerate(methods.items()):
                for what, shift in (("error", 0), ("bound", len(methods))):
                    line = series.over_rounds(f"{method}, {what}", own, _along(step_sizes, what))
                    draw_line(axes, line, place + shift)
            axes.set(title=TITLES[step_sizes], yscale="log")
            count_rounds(axes)
            axes.minorticks_off()
        for axes in drawn.axes[: len(STEP_SIZES)]:
            axes.set_ylabel("F(w) − F*, and its bound")
        _draw_gaps(drawn.axes[-1], methods)
        sentence = (
            "Error and printed bound of Theorem 1 on softmax with an L2 term, whose constants are "
            "the extremes of the path: a lower estimate of the bound."
        )
        return write(drawn, folder, f"{name}-bound", caption_of(sentence, name, cells))


def _along(step_sizes: str, what: str) -> Callable[[CellRow], Sequence[float | None]]:
    return lambda cell: path_of(cell, step_sizes).get(what, ())


def _draw_gaps(axes: Axes, methods: dict[str, list[CellRow]]) -> None:
    for place, (title, key) in enumerate((("φ_min", "least_gap"), ("φ_max", "largest_gap"))):
        points: dict[float, list[float]] = {}
        for at, own in enumerate(methods.values()):
            values = [constant(key)(cell) for cell in own]
            points[float(at)] = [value for value in values if value is not None]
        line = series.line_through(title, points)
        errors = [error or 0.0 for error in line.error]
        axes.errorbar(line.x, line.mean, errors, label=title, fmt="os"[place], color="k", capsize=3)
    axes.set_xticks(range(len(methods)), list(methods))
    slant_names(axes)
    axes.set(title="φ, as seen on the path", xlabel="method", ylabel="φ")
