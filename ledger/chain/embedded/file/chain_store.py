"""The storage of the embedded chain: one SQLite database, one writer, any number of readers.

Table `meta` identifies the chain, `kv` has what the EVM stores (headers, trie nodes, code,
lookups), `logs` has the blocks' logs for searching. A block is written in one SQLite transaction
across all three, so readers and crashes see the whole block or nothing. Readers open the file
read-only and never take the writer's lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from eth.db.schema import SchemaV1

from ledger.chain.embedded.file import log_table
from ledger.chain.embedded.file.log_table import LogRow
from ledger.chain.embedded.file.sqlite_file import SqliteFile, Synchronous, size_of
from ledger.chain.ports import ChainDamagedError, ChainLockedError
from ledger.protocol.errors import ChainError

SCHEMA_VERSION = 1
META_KEYS = frozenset({"schema", "chain_id", "fork", "genesis_hash"})

HEAD_KEY = SchemaV1.make_canonical_head_hash_lookup_key()
"""The EVM's storage key of the newest block's hash."""

_CREATE = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
{log_table.CREATE}
"""
_STATEMENTS = [statement.strip() for statement in _CREATE.split(";") if statement.strip()]


class ChainStore:
    """An open chain file; safe to share between threads."""

    def __init__(self, file: SqliteFile) -> None:
        self.path = file.path
        self._file = file
        self._identity = _identity(file.path)

    @classmethod
    def create(cls, path: Path, synchronous: Synchronous = "FULL") -> Self:
        """Return a new, empty store, which is not a chain before `initialise`."""
        store = cls(SqliteFile.write(path, "rwc", synchronous))
        if store.rows("SELECT name FROM sqlite_master LIMIT 1"):
            store.close()
            raise ChainError(f"{path}: exists already; open it, or choose another path")
        return store

    @classmethod
    def open(cls, path: Path, synchronous: Synchronous = "FULL") -> Self:
        """Return an existing store with a valid meta table, open for writing."""
        _require_file(path)
        require_one_name(path)
        return cls(SqliteFile.write(path, "rw", synchronous))._verified()

    @classmethod
    def open_reading(cls, path: Path, *, is_snapshot: bool = False) -> Self:
        """Return an existing store with a valid meta table, open for reading.

        Args:
            path: of the SQLite file; another process may write to it.
            is_snapshot: whether it shows one state of the file until it is closed.
        """
        _require_file(path)
        return cls(SqliteFile.read(path, is_snapshot=is_snapshot))._verified()

    def _verified(self) -> Self:
        try:
            self.verify_meta()
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def is_blank(cls, path: Path) -> bool:
        """Return whether a file is a SQLite database without tables."""
        # A killed process's journal has to be rolled back before the file can be read. Otherwise
        # nothing is written: closing a writer would discard the rest of a damaged -wal.
        undo = size_of(path.resolve(), "-journal")
        file = SqliteFile.write(path, "rw", "FULL") if undo else SqliteFile.read(path)
        try:
            return not file.rows("SELECT name FROM sqlite_master LIMIT 1")
        finally:
            file.close()

    def verify_meta(self) -> None:
        """Verify the meta table of a chain of this version."""
        statements = {
            sql for (sql,) in self.rows("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
        }
        if not statements:
            raise ChainDamagedError(f"{self.path}: this SQLite file holds no chain")
        # Whole statements: a trigger or a view could falsify rows.
        if statements != set(_STATEMENTS):
            raise ChainDamagedError(f"{self.path}: its tables are not those of a chain")
        missing = sorted(META_KEYS - self.meta().keys())
        if missing:
            raise ChainDamagedError(f"{self.path}: the chain lacks {', '.join(missing)}")
        if self.meta()["schema"] != str(SCHEMA_VERSION):
            version = self.meta()["schema"]
            raise ChainError(
                f"{self.path}: written in format {version}, this program reads {SCHEMA_VERSION}"
            )

    def meta(self) -> dict[str, str]:
        """Return the values that identify the chain, by name."""
        return dict(self.rows("SELECT name, value FROM meta"))

    def get(self, key: bytes) -> bytes | None:
        """Return a value of the EVM's storage; None if there is none."""
        rows = self.rows("SELECT value FROM kv WHERE key = ?", (key,))
        if not rows:
            return None
        value = rows[0][0]
        if not isinstance(value, bytes):
            raise ChainDamagedError(f"{self.path}: the value of {key!r} is not bytes")
        return value

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query; ChainError if the file is damaged or closed."""
        return self._file.rows(query, parameters)

    def verify_pages(self) -> None:
        """Verify that pages are whole and every index agrees with its table."""
        [(first,), *_] = self.rows("PRAGMA integrity_check(1)")
        if first != "ok":
            summary = " ".join(str(first).split())[:200]
            raise ChainDamagedError(f"{self.path}: {summary}")

    def scan(self, query: str) -> Iterator[Any]:
        """Iterate over the rows of a query, for tables that may not fit into memory."""
        return self._file.scan(query)

    def commit(
        self,
        values: Mapping[bytes, bytes | None],
        logs: Iterable[LogRow] = (),
        *,
        parent: bytes,
    ) -> None:
        """Write a block atomically; it is durable when this returns.

        Args:
            values: the EVM's storage; None deletes.
        """
        if _identity(self.path) != self._identity:
            raise ChainError(
                f"{self.path}: another file, or none, has this name now; nothing was written"
            )
        with self._file.transaction() as connection:
            if self.get(HEAD_KEY) != parent:
                raise ChainLockedError(
                    f"{self.path}: another process has added blocks since this writer opened it; "
                    "nothing was written"
                )
            _write(connection, values, logs)

    def initialise(self, meta: Mapping[str, str], values: Mapping[bytes, bytes | None]) -> None:
        """Turn the empty store into a chain: tables, meta and block 0, atomically.

        Args:
            meta: the values that identify the chain, every one of `META_KEYS`.
            values: the EVM's storage after block 0.
        """
        with self._file.transaction() as connection:
            for statement in _STATEMENTS:
                connection.execute(statement)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            _write(connection, values, ())

    @property
    def is_snapshot(self) -> bool:
        """True if it shows one state of the file until it is closed."""
        return self._file.is_snapshot

    @property
    def is_closed(self) -> bool:
        """True if it is closed."""
        return self._file.is_closed

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log, in bytes."""
        return self._file.wal_bytes

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file, durably; return whether it is empty now."""
        return self._file.checkpoint()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()


def _write(
    connection: sqlite3.Connection, values: Mapping[bytes, bytes | None], logs: Iterable[LogRow]
) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO kv VALUES (?, ?)",
        sorted((key, value) for key, value in values.items() if value is not None),
    )
    connection.executemany(
        "DELETE FROM kv WHERE key = ?",
        [(key,) for key, value in values.items() if value is None],
    )
    connection.executemany(log_table.INSERT, logs)


def require_one_name(path: Path) -> None:
    """Reject a file with hard links: each name would have its own lock."""
    if (names := path.stat().st_nlink) > 1:
        raise ChainLockedError(
            f"{path}: the file has {names} names (hard links), and under each of them another "
            "process could write; remove the others, or copy the file"
        )


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise ChainError(f"{path}: no such chain file")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
