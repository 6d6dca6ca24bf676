"""Number 5: where the attackers are, as more and more of the clients attack.

N1, N2 and N3 are the paper's: attackers among the training clients, on the committee, and among the
aggregated clients, here as means over a run's rounds.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import draw_floor, draw_line, panels
from clients.experiments.drawing.figure_file import caption_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow

AXIS = "epsilon"

COUNTS: tuple[tuple[str, Callable[[CellRow], Sequence[int]]], ...] = (
    ("N1, training", lambda cell: cell.malicious_trained),
    ("N2, on the committee", lambda cell: cell.malicious_members or ()),
    ("N3, aggregated", lambda cell: cell.malicious_aggregated),
)


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment along the axis epsilon.

    Args:
        name: of the experiment.
        cells: of it.
        folder: where to.
    """
    methods = series.by_method(cells)
    with panels(len(methods) + 1, sharex=True) as drawn:
        for axes, (method, own) in zip(drawn.axes, methods.items(), strict=False):
            for place, (title, of) in enumerate(COUNTS):
                draw_line(axes, along(title, own, _mean_of(of)), place)
            axes.set(title=f"{method}: attackers in a round", xlabel="ε, percent")
        last = drawn.axes[-1]
        for place, (method, own) in enumerate(methods.items(), start=len(COUNTS)):
            draw_line(last, along(f"{method}, accuracy", own, lambda cell: cell.final), place)
        draw_floor(last, series.floor_of(cells))
        last.set(title="final test accuracy", xlabel="ε, percent")
        sentence = (
            "Attackers in a round, mean over rounds and seeds, and what becomes of the model."
        )
        return write(drawn, folder, name, caption_of(sentence, name, cells))


def along(
    title: str, cells: Sequence[CellRow], of: Callable[[CellRow], float | None]
) -> series.PlotLine:
    """Return a number of each cell along the axis epsilon."""
    points: dict[float, list[float]] = {}
    for cell in cells:
        value = of(cell)
        if value is not None:
            points.setdefault(float(cell.axes[AXIS]), []).append(value)
    return series.line_through(title, points)


def _mean_of(counts: Callable[[CellRow], Sequence[int]]) -> Callable[[CellRow], float | None]:
    """Return what gives the mean of a count over a cell's rounds; None without any."""
    return lambda cell: fmean(values) if (values := counts(cell)) else None
