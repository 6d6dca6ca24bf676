"""The file behind the embedded chain: one SQLite database, one writer, any number of readers.

Three tables: `meta` says which chain this is, `kv` holds what the EVM stores (headers, trie
nodes, code, look-ups), `logs` holds the blocks' events for searching. A block is written in ONE
SQLite transaction across all three, so that a reader or a crash sees the whole block or none of
it. Readers open the file read-only and never take the writer's lock.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from ledger.chain.embedded import log_table
from ledger.chain.ports import ChainDamagedError
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.chain.embedded.log_table import LogRow

SCHEMA_VERSION = 1
META_KEYS = frozenset({"schema", "chain_id", "fork", "genesis_hash"})

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: a block survives power loss. NORMAL: it survives a killed process, a little faster."""

_CREATE = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
{log_table.CREATE}
"""
_STATEMENTS = [statement.strip() for statement in _CREATE.split(";") if statement.strip()]


class Store:
    """An open chain file; safe to share between threads.

    Attributes:
        path: the SQLite file.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path, synchronous: Synchronous = "FULL") -> Self:
        """Return a new, empty store, not yet a chain until the first commit.

        Args:
            path: where; a file that already holds something is refused.
            synchronous: how much a commit waits for the disk.

        Returns:
            The store, open for writing.

        Raises:
            ChainError: there is something already, or the file cannot be made.
        """
        store = cls._connect(path, "rwc", synchronous)
        if store.rows("SELECT name FROM sqlite_master LIMIT 1"):
            store.close()
            raise ChainError(f"{path}: exists already; open it, or choose another path")
        return store

    @classmethod
    def open(cls, path: Path, *, read_only: bool, synchronous: Synchronous = "FULL") -> Self:
        """Return an existing store whose meta table is complete.

        Args:
            path: the SQLite file.
            read_only: never write; the file may grow under another process's hands.
            synchronous: how much a commit waits for the disk.

        Returns:
            The open store.

        Raises:
            ChainError: there is no such file, or it is no chain of this version.
        """
        if not path.is_file():
            raise ChainError(f"{path}: no such chain file")
        store = cls._connect(path, "ro" if read_only else "rw", synchronous)
        try:
            store.verify_meta()
        except ChainError:
            store.close()
            raise
        return store

    @classmethod
    def is_blank(cls, path: Path) -> bool:
        """Say whether a file is an SQLite database without a single table.

        Args:
            path: the file.

        Raises:
            ChainError: it cannot be read, or is no SQLite database.
        """
        # Not "ro": what a killed process had begun to write has to be undone before it can be read.
        store = cls._connect(path, "rw", "FULL")
        try:
            return not store.rows("SELECT name FROM sqlite_master LIMIT 1")
        finally:
            store.close()

    @classmethod
    def _connect(cls, path: Path, mode: str, synchronous: Synchronous) -> Self:
        with _translated(path):
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=10.0,
            )
        try:
            with _translated(path):
                if mode == "ro":
                    connection.execute("PRAGMA query_only = ON")
                else:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute(f"PRAGMA synchronous = {synchronous}")
        except ChainError:
            connection.close()
            raise
        return cls(path, connection)

    def verify_meta(self) -> None:
        """Accept the meta table of a chain of this version.

        Raises:
            ChainDamagedError: it is missing or incomplete.
            ChainError: another version of this program wrote it.
        """
        statements = {
            sql for (sql,) in self.rows("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
        }
        if not statements:
            raise ChainDamagedError(f"{self.path}: this SQLite file holds no chain")
        # Whole statements, since a trigger or a view could lie as well as a row.
        if statements != set(_STATEMENTS):
            raise ChainDamagedError(f"{self.path}: its tables are not those of a chain")
        missing = sorted(META_KEYS - self.meta().keys())
        if missing:
            raise ChainDamagedError(f"{self.path}: the chain lacks {', '.join(missing)}")
        if self.meta()["schema"] != str(SCHEMA_VERSION):
            found = self.meta()["schema"]
            raise ChainError(
                f"{self.path}: written in format {found}, this program reads {SCHEMA_VERSION}"
            )

    def meta(self) -> dict[str, str]:
        """Return the facts that identify the chain: name to value."""
        return dict(self.rows("SELECT name, value FROM meta"))

    def get(self, key: bytes) -> bytes | None:
        """Return one value of the EVM's storage; None where there is none.

        Args:
            key: as the EVM chose it.

        Raises:
            ChainDamagedError: the file is damaged.
        """
        found = self.rows("SELECT value FROM kv WHERE key = ?", (key,))
        if not found:
            return None
        value = found[0][0]
        if not isinstance(value, bytes):
            raise ChainDamagedError(f"{self.path}: the value of {key!r} is not bytes")
        return value

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query.

        Args:
            query: SQL with placeholders.
            parameters: their values.

        Raises:
            ChainError: the file cannot be read, is damaged or closed.
        """
        with self._lock, _translated(self.path):
            return self._connection.execute(query, parameters).fetchall()

    def verify_pages(self) -> None:
        """Accept the file if its pages are whole and every index agrees with its table.

        Raises:
            ChainDamagedError: a search could miss or invent rows.
        """
        [(first,), *_] = self.rows("PRAGMA integrity_check(1)")
        if first != "ok":
            summary = " ".join(str(first).split())[:200]
            raise ChainDamagedError(f"{self.path}: {summary}")

    def scan(self, query: str) -> Iterator[Any]:
        """Yield the rows of a query one by one, for tables that may not fit into memory.

        Args:
            query: SQL without placeholders.

        Yields:
            A row.
        """
        with self._lock, _translated(self.path):
            yield from self._connection.execute(query)

    def commit(self, values: Mapping[bytes, bytes | None], logs: Iterable[LogRow] = ()) -> None:
        """Write a block, whole or not at all; it is durable when this returns.

        Args:
            values: what the EVM stores; None deletes.
            logs: the block's events.

        Raises:
            ChainError: the disk refuses; nothing was written.
        """
        with self._transaction():
            self._write(values, logs)

    def initialise(self, meta: Mapping[str, str], values: Mapping[bytes, bytes | None]) -> None:
        """Make the empty store a chain: tables, meta and block 0, whole or not at all.

        Args:
            meta: the facts that identify the chain, every one of `META_KEYS`.
            values: what the EVM stores for block 0.

        Raises:
            ChainError: the disk refuses; nothing was written.
        """
        with self._transaction():
            for statement in _STATEMENTS:
                self._connection.execute(statement)
            self._connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            self._write(values, ())

    def _write(self, values: Mapping[bytes, bytes | None], logs: Iterable[LogRow]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO kv VALUES (?, ?)",
            sorted((key, value) for key, value in values.items() if value is not None),
        )
        self._connection.executemany(
            "DELETE FROM kv WHERE key = ?",
            [(key,) for key, value in values.items() if value is None],
        )
        self._connection.executemany(log_table.INSERT, logs)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, _translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        with self._lock:
            self._connection.close()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        kind = ChainDamagedError if _says_damaged(error) else ChainError
        summary = " ".join(str(error).split())[:200]
        raise kind(f"{path}: {summary}") from error


def _says_damaged(error: Exception) -> bool:
    # OperationalError covers a locked file and a full disk; what SQLite calls corruption is a
    # plain DatabaseError ("malformed", "not a database"), or text that is none.
    return type(error) is sqlite3.DatabaseError or isinstance(error, UnicodeError)
