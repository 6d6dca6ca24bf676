"""The published rows, without those of removed methods and attacks.

The archives keep all rows, as data of the version that played them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clients.experiments.rows import CellRow, ChoiceRow, ExperimentRows, TrialRow, read_experiments

if TYPE_CHECKING:
    Row = TypeVar("Row", CellRow, TrialRow, ChoiceRow)

ROWS = Path(__file__).parent / "rows"

REMOVED_METHODS = frozenset(
    {
        "CMFL-III-spread",
        "robust",
        "robust-travel",
        "own",
        "travel",
        "travel-sum",
        "crowd",
        "crowd-clipped",
        "peers-clipped",
        "peers-quantile",
        "peers-lot",
    }
)
"""Forms of strategy III with rules that version 3 removed."""

REMOVED_ATTACKS = frozenset({"frame", "target-blind"})
"""Attacks that were removed; conditions have their names."""

REMOVED_DISTANCE = ("authors-sent140", "authors-shakespeare")
"""Experiments whose rows have the distance `per_tensor`, which version 3 removed."""


def read_published(folder: Path = ROWS, experiment: str | None = None) -> dict[str, ExperimentRows]:
    """Return the rows of each experiment without removed methods and attacks."""
    rows = read_experiments(folder, experiment)
    return {
        name: replace(
            of, cells=_attacked(_kept(of.cells)), trials=_kept(of.trials), choices=_kept(of.choices)
        )
        for name, of in rows.items()
    }


def _kept(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.method not in REMOVED_METHODS)


def _attacked(cells: Iterable[CellRow]) -> tuple[CellRow, ...]:
    return tuple(cell for cell in cells if cell.condition not in REMOVED_ATTACKS)
