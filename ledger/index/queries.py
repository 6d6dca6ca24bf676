"""Queries that are asked with every request: compiled once, and run by the database's own driver.

SQLAlchemy takes several times as long to bring a statement that it knows to a cursor as SQLite
takes to answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.index.index_errors import IndexDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import ColumnElement, Connection, Select

Row = tuple[Any, ...]

_SIZES = {"address": 20} | dict.fromkeys(("genesis", "hash", "head"), 32)
"""Of columns whose values all have one size, in bytes."""
_LEAST = {"client": -1, "block": -1, "final": -1}
"""Least number of a column where it is not 0: of no client, or before the first block."""


class Query:
    """A statement with named parameters, whose values and columns are what drivers take and give.

    A truth value may come back as a number. SQLite keeps in any column whatever was written there:
    values are checked to be of their column's kind, before they are used in an answer.

    Attributes:
        names: of the columns.
    """

    def __init__(self, statement: Select[Any], optional: Iterable[str] = ()) -> None:
        """Prepare a query; it is compiled when it is first asked.

        Args:
            statement: with named parameters.
            optional: columns that an outer join may leave empty.
        """
        self.names = tuple(statement.selected_columns.keys())
        self._kinds = [_kinds_of(column, optional) for column in statement.selected_columns]
        self._statement = statement
        self._texts: dict[str, tuple[str, tuple[str, ...] | None, dict[str, Any]]] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> list[Row]:
        """Return all rows.

        Raises:
            IndexDamagedError: a value is of another kind than its column.
        """
        text, order, fixed = self._compiled(connection)
        parameters = {**fixed, **values}
        cursor = connection.connection.cursor()
        try:
            cursor.execute(
                text, parameters if order is None else [parameters[name] for name in order]
            )
            rows = list(cursor.fetchall())
        finally:
            cursor.close()
        self.require_kinds(rows)
        return rows

    def require_kinds(self, rows: Iterable[Row]) -> None:
        """Accept rows whose values are of their columns' kinds.

        Raises:
            IndexDamagedError: names a column with another value.
        """
        by_column = zip(*rows, strict=True)  # none where there are no rows
        for name, kinds, values in zip(self.names, self._kinds, by_column, strict=False):
            if not (kinds.issuperset(map(type, values)) and _are_bounded(name, kinds, values)):
                raise IndexDamagedError(
                    f"the index holds a {name} that is nothing it has written: run "
                    "cmfl index rebuild"
                )

    def mappings(
        self, connection: Connection, values: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """Return all rows by the names of their columns."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows(connection, values)]

    def _compiled(
        self, connection: Connection
    ) -> tuple[str, tuple[str, ...] | None, dict[str, Any]]:
        """Return the text for a driver, the order of its parameters, and those that are fixed.

        The order is None where the driver takes them by name.
        """
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            compiled = self._statement.compile(dialect=dialect)
            order = None if compiled.positiontup is None else tuple(compiled.positiontup)
            fixed = {name: value for name, value in compiled.params.items() if value is not None}
            text = self._texts[dialect.name] = str(compiled), order, fixed
        return text


def _kinds_of(column: ColumnElement[Any], optional: Iterable[str]) -> frozenset[type]:
    """Return the types that a driver may give of a column."""
    kind = column.type.python_type
    kinds = {bool, int} if kind is bool else {kind}
    if getattr(column, "nullable", False) or getattr(column, "name", "") in optional:
        kinds.add(type(None))
    return frozenset(kinds)


def _are_bounded(name: str, kinds: frozenset[type], values: Iterable[Any]) -> bool:
    """Say whether values of the right kinds have the size of their column, or are large enough."""
    present = [value for value in values if value is not None]
    if int in kinds:
        return min(present, default=0) >= _LEAST.get(name, 0)
    size = _SIZES.get(name)
    return size is None or {size}.issuperset(map(len, present))
