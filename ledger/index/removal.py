"""Removing an index: nothing is lost, for the chain and the blobs have all that it held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.index.database import Database
from ledger.index.errors import IndexDamagedError, IndexSchemaError, IndexStoreError
from ledger.index.schema import drop_schema, is_index

if TYPE_CHECKING:
    from pathlib import Path

_BESIDE = ("", "-wal", "-shm")
"""What SQLite keeps beside its file."""


def drop_index(where: Path | str, *, is_own: bool) -> bool:
    """Remove an index, of whatever version; say whether there was one.

    Args:
        where: its SQLite file, or the URL of its PostgreSQL database.
        is_own: whether a file has the name that a home gives to its index, so that it may be
            removed even where it is damaged.

    Raises:
        IndexSchemaError: it is something else.
        IndexStoreError: it cannot be written.
    """
    if isinstance(where, str):
        return _tables_dropped(where)
    if not where.exists():
        return False
    if not is_own and not _holds_index(where):
        raise IndexSchemaError(
            f"{where} holds no index of this program, or is damaged: it is left as it is; remove "
            "it by hand if nobody needs it"
        )
    for suffix in _BESIDE:
        path = where.with_name(f"{where.name}{suffix}")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise IndexStoreError(f"{path} cannot be removed: {error.strerror}") from error
    return True


def _tables_dropped(url: str) -> bool:
    database = Database(url, read_only=False)
    try:
        if not is_index(database):
            return False
        drop_schema(database)
    finally:
        database.close()
    return True


def _holds_index(path: Path) -> bool:
    database = Database(path)
    try:
        return is_index(database)
    except IndexDamagedError:
        return False
    finally:
        database.close()
