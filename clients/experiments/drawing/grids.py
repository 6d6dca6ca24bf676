"""Number 3: final accuracy over two of alpha, omega and epsilon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import draw_table, panels
from clients.experiments.drawing.figure_file import NO_ERRORS, caption_of, write
from clients.experiments.statistics import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment with two axes, a panel for each method and condition.

    Args:
        name: of the experiment.
        cells: of it, all with the same two axes.
        folder: where to.
    """
    down, across = list(cells[0].axes)[:2]
    groups = series.grouped(cells, lambda cell: f"{cell.method}, {cell.condition}")
    with panels(len(groups), columns=2, size=(4.4, 3.4)) as drawn:
        for axes, (title, own) in zip(drawn.axes, groups.items(), strict=True):
            labels = (_labels(own, down), _labels(own, across))
            table = [[_mean(own, {down: y, across: x}) for x in labels[1]] for y in labels[0]]
            draw_table(axes, table, labels)
            axes.set(title=title, xlabel=across, ylabel=down)
        floor = series.floor_of(cells)
        floor_text = "" if floor is None else f" The commonest class alone scores {floor:.3f}."
        sentence = f"Mean accuracy of the last five measured rounds.{floor_text}"
        return write(drawn, folder, name, caption_of(sentence, name, cells, NO_ERRORS))


def _labels(cells: Sequence[CellRow], axis: str) -> list[str]:
    return list(dict.fromkeys(cell.axes[axis] for cell in cells))


def _mean(cells: Sequence[CellRow], labels: dict[str, str]) -> float | None:
    finals = [
        cell.final
        for cell in cells
        if cell.final is not None and all(cell.axes[axis] == x for axis, x in labels.items())
    ]
    return mean_and_error(finals).mean if finals else None
