"""Queries that are asked with every request: compiled once, and run by the database's own driver.

SQLAlchemy takes several times as long to bring a statement that it knows to a cursor as SQLite
takes to answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Select

Row = tuple[Any, ...]


class Query:
    """A statement with named parameters, whose values and columns are what drivers take and give.

    A truth value may come back as a number.

    Attributes:
        names: of the columns.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self.names = tuple(statement.selected_columns.keys())
        self._statement = statement
        self._texts: dict[str, tuple[str, tuple[str, ...] | None, dict[str, Any]]] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> list[Row]:
        """Return all rows.

        Args:
            connection: in a transaction.
            values: of all parameters.
        """
        text, order, fixed = self._compiled(connection)
        given = {**fixed, **values}
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, given if order is None else [given[name] for name in order])
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def mappings(
        self, connection: Connection, values: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """Return all rows by the names of their columns.

        Args:
            connection: in a transaction.
            values: of all parameters.
        """
        return [dict(zip(self.names, row, strict=True)) for row in self.rows(connection, values)]

    def _compiled(
        self, connection: Connection
    ) -> tuple[str, tuple[str, ...] | None, dict[str, Any]]:
        """Return the text for a driver, the order of its parameters, and those that are fixed.

        The order is None where the driver takes them by name.
        """
        dialect = connection.dialect
        known = self._texts.get(dialect.name)
        if known is None:
            compiled = self._statement.compile(dialect=dialect)
            order = None if compiled.positiontup is None else tuple(compiled.positiontup)
            fixed = {name: value for name, value in compiled.params.items() if value is not None}
            known = self._texts[dialect.name] = str(compiled), order, fixed
        return known
