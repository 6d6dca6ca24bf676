"""The order in which an experiment's cells are told and drawn: its definition's, not their ends'.

Cells that run side by side end in any order, and so do their rows. What is made of them must not
depend on it.
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
    kept = [name for name, found in rows.items() if found.cells]
    return {
        name: ExperimentRows(_sorted(name, rows[name].cells), rows[name].trials, rows[name].choices)
        for name in sorted(kept, key=lambda name: (rows[name].cells[0].number, name))
    }


def _sorted(name: str, cells: Sequence[CellRow]) -> tuple[CellRow, ...]:
    definition = _definition(name)
    methods = [] if definition is None else [one.name for one in definition.methods]
    conditions = [] if definition is None else [one.name for one in definition.conditions]
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
    """Return where a name stands; after all that are known, and by itself, if it is not known."""
    return (known.index(name) if name in known else len(known), name)
