"""The figures of all experiments, from their rows: `cmfl experiment plot`.

An experiment is drawn by its number; one with two axes is a map, whatever its number. The same rows
give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import (
    attacker_counts,
    confound,
    efficiency,
    grids,
    normal,
    robustness,
)
from clients.experiments.tables import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow, ExperimentRows

    Draw = Callable[[str, Sequence[CellRow], Path], list[Path]]

DRAWN_BY: Mapping[int, Draw] = {
    1: normal.draw,
    2: robustness.draw,
    3: grids.draw,
    4: efficiency.draw,
    5: attacker_counts.draw,
    7: confound.draw,
}


def draw(
    rows: Mapping[str, ExperimentRows], folder: Path, drawn_by: Mapping[int, Draw] = DRAWN_BY
) -> list[Path]:
    """Draw every experiment that has rows."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, experiment in sorted_rows(rows).items():
        cells = experiment.cells
        # Curves under every condition, for a number without a figure of its own.
        drawing = drawn_by.get(cells[0].number, robustness.draw)
        paths += (grids.draw if len(cells[0].axes) > 1 else drawing)(name, cells, folder)
    return paths
