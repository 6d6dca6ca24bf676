"""A chain file as a SQLite database: for writing, for reading during writes, for reading only.

In write-ahead mode a reader shares memory with the writer in `<file>-shm`. Where that file cannot
be made (a read-only mount, another user's folder), a file without write-ahead log is opened as
immutable: without locks, so the reader itself checks whether it was written to meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from ledger.chain.ports import ChainDamagedError, NotServedError
from ledger.protocol.errors import ChainError

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: a block survives power loss. NORMAL: it survives a killed process; faster."""

_BUSY_SECONDS = 10.0


# What changes when somebody writes to a file opened as immutable: device, inode, size, time in ns,
# and bytes that wait in its side files.
_Mark = tuple[int, int, int, int, int]


class SqliteFile:
    """An open SQLite file, or one state of it (a snapshot); safe to share between threads."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, mark: _Mark | None = None
    ) -> None:
        self.path = path
        self._connection = connection
        self._mark = mark
        self.is_snapshot = self.is_closed = False
        self._whole_path = path.resolve()
        self._lock = threading.RLock()

    @classmethod
    def write(cls, path: Path, mode: Literal["rw", "rwc"], synchronous: Synchronous) -> Self:
        """Return the file open for writing, in write-ahead mode; mode "rwc" creates it."""
        with translated(path):
            pragmas = ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}")
            return cls(path, _connect(path, f"mode={mode}", *pragmas))

    @classmethod
    def read(cls, path: Path, *, is_snapshot: bool = False) -> Self:
        """Return the file open for reading, whatever permissions its folder has."""
        connection, mark = _reading(path)
        file = cls(path, connection, mark)
        if is_snapshot:
            file.rows("BEGIN")
            file.rows("SELECT 1 FROM sqlite_master LIMIT 1")
            file.is_snapshot = True
        return file

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._lock, translated(self.path):
            for _ in range(5):
                self._follow()
                try:
                    rows = self._connection.execute(query, parameters).fetchall()
                except sqlite3.DatabaseError:
                    if self._is_still():
                        raise
                    continue
                if self._is_still():
                    return rows
            raise self._moved()

    def scan(self, query: str) -> Iterator[Any]:
        with self._lock, translated(self.path):
            self._follow()
            yield from self._connection.execute(query)
            if not self._is_still():
                raise self._moved()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose statements are committed together, or not at all."""
        with self._lock, translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @property
    def wal_bytes(self) -> int:
        return size_of(self._whole_path, "-wal")

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file, but for what a reader needs, durably.

        Return whether the log is empty now; nothing waits for a reader.
        """
        with self._lock, translated(self.path):
            self._connection.execute("PRAGMA busy_timeout = 0")
            try:
                moved = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                milliseconds = int(_BUSY_SECONDS * 1000)
                self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
        return bool(moved[0] == 0)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._connection.close()

    def _is_still(self) -> bool:
        return self._mark is None or _mark_of(self._whole_path) == self._mark

    def _follow(self) -> None:
        """Reopen an immutable file after it was written to."""
        if self._is_still():
            return
        if self.is_snapshot:
            raise self._moved()
        self._connection.close()
        self._connection, self._mark = _reading(self.path)

    def _moved(self) -> NotServedError:
        return NotServedError(
            f"{self.path}: another process writes to this chain, and this user cannot use its "
            "locks; try again when the writer has ended"
        )


def _reading(path: Path) -> tuple[sqlite3.Connection, _Mark | None]:
    """Return a read-only connection, and a mark if the file is opened as immutable."""
    with translated(path):
        if (shared := _connected(path, "mode=ro")) is not None:
            return shared, None
        mark = _mark_of(path.resolve())
        if mark[-1]:
            raise ChainError(
                f"{path}: its newest blocks wait in {path.name}-wal, and to read them SQLite must "
                "write beside it, which this user may not; let the owner's writer open and close "
                "the chain, or copy chain and -wal to a folder of your own"
            )
        if (immutable := _connected(path, "mode=ro&immutable=1")) is None:
            raise ChainError(f"{path}: this user may not read the chain file")
        return immutable, mark


def _connected(path: Path, options: str) -> sqlite3.Connection | None:
    """Return a read-only connection; None if the user lacks permissions for it."""
    try:
        return _connect(
            path, options, "PRAGMA query_only = ON", "SELECT 1 FROM sqlite_master LIMIT 1"
        )
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
            return None
        raise


def _mark_of(path: Path) -> _Mark:
    # Not opened and closed here: that would release this process's own locks on it.
    try:
        status = path.stat()
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}") from error
    waiting = size_of(path, "-wal") + size_of(path, "-journal")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, waiting


def size_of(path: Path, suffix: str) -> int:
    """Return the size of a side file, "-wal" or "-journal", next to the database and not a link."""
    try:
        return path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0


def _connect(path: Path, options: str, *statements: str) -> sqlite3.Connection:
    """Return a connection on which these statements have succeeded."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_SECONDS,
    )
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(connection.close)
        for statement in statements:
            connection.execute(statement).fetchall()
        unless_done.pop_all()
    return connection


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite errors into a `ChainError` that names the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        summary = " ".join(str(error).split())[:200]
        # OperationalError covers a locked file, a full disk, and invalid text; corruption is a
        # plain DatabaseError ("malformed", "not a database").
        is_damaged = (
            type(error) is sqlite3.DatabaseError
            or isinstance(error, UnicodeError)
            or summary.startswith("Could not decode to UTF-8")
        )
        raise (ChainDamagedError if is_damaged else ChainError)(f"{path}: {summary}") from error
