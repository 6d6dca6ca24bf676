"""The order of an experiment's cells in tables and figures: that of its definition.

Parallel cells finish in any order, and so do their rows; reports must not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.catalogue import definition_named
from clients.experiments.rows import ExperimentRows
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.experiments.definition import Definition
    from clients.experiments.rows import CellRow


def sorted_rows(rows: Mapping[str, ExperimentRows]) -> dict[str, ExperimentRows]:
    """Return all experiments by number and name, their cells in the order of their definitions.

    Args:
        rows: of each experiment, by its name; those without cells are left out.
    """
    experiments = [name for name, experiment in rows.items() if experiment.cells]
    return {
        name: ExperimentRows(_sorted(name, rows[name].cells), rows[name].trials, rows[name].choices)
        for name in sorted(experiments, key=lambda name: (rows[name].cells[0].number, name))
    }


def _sorted(name: str, cells: Sequence[CellRow]) -> tuple[CellRow, ...]:
    definition = _definition(name)
    methods = [] if definition is None else [entry.name for entry in definition.methods]
    conditions = [] if definition is None else [entry.name for entry in definition.conditions]
    axes = (
        {} if definition is None else {a.name: [p.label for p in a.values] for a in definition.axes}
    )

    def key(cell: CellRow) -> tuple[object, ...]:
        labels = [_place(axes.get(axis, []), label) for axis, label in cell.axes.items()]
        return (_place(conditions, cell.condition), labels, _place(methods, cell.method), cell.seed)

    return tuple(sorted(cells, key=key))


def _definition(name: str) -> Definition | None:
    """Return the experiment of a name, None for one that does not come with the package."""
    try:
        return definition_named(name)
    except ConfigurationError:
        return None


def _place(known: Sequence[str], name: str) -> tuple[int, str]:
    """Return the sort key of a name; unknown names come last, in alphabetical order."""
    return (known.index(name) if name in known else len(known), name)
