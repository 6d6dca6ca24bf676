"""The figures of all experiments, from their rows: `cmfl experiment plot`.

An experiment's definition names the kinds of its figures; without a word of it they follow from the
number of its axes. The same rows give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.definition import require_axes
from clients.experiments.drawing import accuracy, clients, efficiency, heat
from clients.experiments.drawing.series import swept_axes
from clients.experiments.report import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from clients.experiments.definition import FigureKind
    from clients.experiments.rows import CellRow, ExperimentRows

    Draw = Callable[[str, Sequence[CellRow], Path], list[Path]]

DRAWN_BY: Mapping[FigureKind, Draw] = {
    "curves": accuracy.draw_curves,
    "table": accuracy.draw_final_table,
    "bars": accuracy.draw_bars,
    "sweep": accuracy.draw_sweep,
    "grid": accuracy.draw_grid,
    "heat": heat.draw_heat,
    "clients": clients.draw_clients,
    "samples": clients.draw_samples,
    "attackers": clients.draw_attackers,
    "time": efficiency.draw_time,
    "spent": efficiency.draw_spent,
    "growth": efficiency.draw_growth,
}
"""All kinds but `bound`, which is part of the repository and not of the installed package."""

UNASKED: tuple[tuple[FigureKind, ...], ...] = (("table", "curves"), ("sweep", "curves"), ("grid",))
"""Figures of an experiment that names none: without an axis, with one, with more."""


def draw(
    rows: Mapping[str, ExperimentRows], folder: Path, drawn_by: Mapping[FigureKind, Draw] = DRAWN_BY
) -> list[Path]:
    """Draw every experiment that has rows.

    Args:
        rows: of each experiment, by its name.
        folder: where to; it is made if need be.
        drawn_by: the kinds of figure; others that a definition names are left out.

    Returns:
        The files, SVG and PNG of each figure.

    Raises:
        ConfigurationError: an experiment's rows lack an axis that a kind of figure needs, or
            matplotlib is not installed.
    """
    experiments = sorted_rows(rows)
    plans = []
    for name, experiment in experiments.items():
        axes = swept_axes(experiment.cells)
        asked = () if experiment.definition is None else experiment.definition.figure
        kinds = [kind for kind in asked if kind in drawn_by] or UNASKED[min(2, len(axes))]
        for kind in kinds:
            require_axes(f"experiment {name}", kind, axes)
            plans.append((drawn_by[kind], name, experiment.cells))
    folder.mkdir(parents=True, exist_ok=True)
    return [path for figure, name, cells in plans for path in figure(name, cells, folder)]
