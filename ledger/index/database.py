"""Opening an index: SQLite by default, PostgreSQL by URL; read-only, or for its one writer.

SQLite keeps a write-ahead log, so that readers and the indexer never wait for each other. Each
reading is one transaction: what it sees does not move.
"""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from ledger.index.index_errors import (
    IndexBusyError,
    IndexDamagedError,
    IndexMissingError,
    IndexStoreError,
    IndexUnreachableError,
)
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

BUSY_SECONDS = 30
CONNECT_SECONDS = 10
_CACHE_KIB = 65_536
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")


class Database:
    """One index's database; safe to share between threads.

    Attributes:
        shown: where it is, without a password.
        path: of the SQLite file; None for a server.
    """

    def __init__(
        self, where: Path | str, *, read_only: bool = True, waits_seconds: float = BUSY_SECONDS
    ) -> None:
        """Prepare to open a database; nothing is opened yet.

        Args:
            where: an SQLite file, or the URL of a PostgreSQL database.
            read_only: whether nothing may be written.
            waits_seconds: how long a question may wait for a lock, or for a free connection.

        Raises:
            ConfigurationError: the URL is none of such a database.
            IndexMissingError: there is no such file, and nothing may be written.
        """
        self.read_only = read_only
        self._waits_seconds = waits_seconds
        self.path = where if isinstance(where, Path) else None
        self._engine = self._of_file(where) if isinstance(where, Path) else self._of_url(where)

    @property
    def is_sqlite(self) -> bool:
        """True for a file of SQLite."""
        return self.path is not None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open one transaction; an error rolls it back.

        Raises:
            IndexStoreError: the database does not do what it is asked.
        """
        with self.translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn a database's errors into ours.

        Raises:
            IndexStoreError: names what is wrong, and with which index.
        """
        try:
            yield
        # Some queries go to the driver itself, and raise its errors.
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            raise self._explained(error) from error

    def write_ahead(self) -> None:
        """Have a file of SQLite keep a write-ahead log from now on.

        Raises:
            IndexStoreError: it cannot.
        """
        if self.is_sqlite:
            with self.translated(), contextlib.closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def _of_file(self, path: Path) -> Engine:
        if self.read_only and not path.is_file():
            raise IndexMissingError(f"there is no index at {path}: cmfl index build makes it")
        self.shown = str(path)
        uri = f"{path.absolute().as_uri()}?mode={'ro' if self.read_only else 'rwc'}"

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(
                uri,
                uri=True,
                timeout=self._waits_seconds,
                isolation_level=None,
                check_same_thread=False,
            )

        engine = create_engine(
            "sqlite://", creator=connect, poolclass=QueuePool, pool_timeout=self._waits_seconds
        )
        event.listen(engine, "connect", self._set_up)
        begin = "BEGIN" if self.read_only else "BEGIN IMMEDIATE"
        event.listen(engine, "begin", lambda connection: _driver_of(connection).execute(begin))
        return engine

    def _of_url(self, url: str) -> Engine:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise ConfigurationError("the index's URL is no URL of a database") from None
        if parsed.get_backend_name() not in {"postgresql", "postgres"}:
            raise ConfigurationError(
                f"the index's URL is of {parsed.drivername[:40]!r}: a file of SQLite is named by "
                "its path, and a server by postgresql://"
            )
        parsed = parsed.set(drivername="postgresql+psycopg")
        self.shown = parsed.render_as_string(hide_password=True)
        options = "-c default_transaction_read_only=off"
        if self.read_only:
            options = (
                "-c default_transaction_read_only=on "
                f"-c lock_timeout={round(1000 * self._waits_seconds)}"
            )
        try:
            return create_engine(
                parsed,
                isolation_level="REPEATABLE READ",
                pool_pre_ping=True,
                pool_timeout=self._waits_seconds,
                connect_args={"connect_timeout": CONNECT_SECONDS, "options": options},
            )
        except (NoSuchModuleError, ArgumentError) as error:
            raise ConfigurationError(f"{self.shown}: {error}") from error

    def _set_up(self, connection: sqlite3.Connection, _record: object) -> None:
        if self.read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA trusted_schema = OFF")

    def _explained(self, error: Exception) -> IndexStoreError:
        cause: Any = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorname", "") or ""
        detail = " ".join(str(cause).split())[:300]
        if code.startswith(_DAMAGED):
            return IndexDamagedError(
                f"{self.shown} is damaged, or no SQLite file ({detail}): run cmfl index rebuild"
            )
        if code.startswith(_BUSY) or type(cause).__name__ == "SerializationFailure":
            return IndexBusyError(f"{self.shown}: another process writes to the index ({detail})")
        return IndexUnreachableError(f"{self.shown}: {detail}")


def _driver_of(connection: Connection) -> Any:
    """Return the driver's own connection."""
    return connection.connection.dbapi_connection
