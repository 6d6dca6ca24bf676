"""The schema's version: made and moved on by Alembic, and asked for before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, Table, Text, inspect, select

from ledger.index.errors import IndexSchemaError
from ledger.index.tables import CHECKPOINT, DIGEST, METADATA

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ledger.index.database import Database

NEWEST = "3"
"""Revision that this program reads and writes."""

_VERSION = Table("alembic_version", MetaData(), Column("version_num", Text))


def require_schema(database: Database) -> None:
    """Accept a database whose tables are those that this program knows.

    Args:
        database: that should hold an index.

    Raises:
        IndexSchemaError: they are others, or there are none.
        IndexStoreError: it cannot be read.
    """
    with database.transaction() as connection:
        found = _revision(connection)
    if found != NEWEST:
        raise IndexSchemaError(
            f"{database.shown} {_said(found)}, and this program reads version {NEWEST}: drop the "
            "index and build it again, or use the program that made it"
        )


def make_schema(database: Database) -> None:
    """Make the tables of an empty database, or move those of an older version on.

    Args:
        database: open for writing.

    Raises:
        IndexSchemaError: it holds other tables, or a version that this program does not know.
        IndexStoreError: it cannot be written.
    """
    with database.transaction() as connection:
        if _is_made(connection, database):
            return
    database.write_ahead()
    with database.transaction() as connection:
        # Another process may have made them meanwhile.
        if not _is_made(connection, database):
            _upgrade(connection, database)


def drop_schema(database: Database) -> None:
    """Remove the tables of an index, of whatever version, and nothing else.

    Args:
        database: open for writing.

    Raises:
        IndexStoreError: it cannot be written.
    """
    with database.transaction() as connection:
        METADATA.drop_all(connection)
        _VERSION.drop(connection, checkfirst=True)


def is_index(database: Database) -> bool:
    """Say whether a database holds an index, of whatever version.

    Args:
        database: any.

    Raises:
        IndexStoreError: it cannot be read.
    """
    with database.transaction() as connection:
        names = set(inspect(connection).get_table_names())
    return {_VERSION.name, CHECKPOINT.name, DIGEST.name} <= names


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar()


def _is_made(connection: Connection, database: Database) -> bool:
    """Say whether the tables are this program's; refuse those of something else.

    Raises:
        IndexSchemaError: they are.
    """
    found, tables = _revision(connection), sorted(inspect(connection).get_table_names())
    if found is None and tables:
        raise IndexSchemaError(
            f"{database.shown} holds tables of something else ({tables[0][:40]!r}): an index needs "
            "a database of its own"
        )
    return found == NEWEST


def _upgrade(connection: Connection, database: Database) -> None:
    # Alembic takes a while to import, and who only reads needs none of it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "ledger.index:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise IndexSchemaError(
            f"{database.shown} {_said(_revision(connection))}, which this program does not know: "
            "drop the index and build it again, or use the program that made it"
        ) from error


def _said(revision: str | None) -> str:
    return "holds no index" if revision is None else f"holds an index of version {revision[:40]!r}"
