"""Opening a chain file as an SQLite database: to write, to read beside a writer, to read only.

A reader of a file in write-ahead mode shares memory with the writer in `<file>-shm`. Where that
cannot be made - a read-only mount, another user's folder - a file that has no write-ahead log is
read as immutable instead: without locks, so that whoever reads it has to see for himself whether
somebody has written to it meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from ledger.chain.ports import ChainDamagedError, NotServedError
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: a block survives power loss. NORMAL: it survives a killed process, a little faster."""

_PATIENCE_SECONDS = 10.0
_TRIES = 5
_TO_READ = ("PRAGMA query_only = ON", "SELECT 1 FROM sqlite_master LIMIT 1")
_NOT_PERMITTED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


@dataclass(frozen=True, slots=True)
class _Mark:
    """What changes when somebody writes to a file that is read as immutable."""

    device: int
    inode: int
    size: int
    modified_ns: int
    waiting_bytes: int


class SqliteFile:
    """An open SQLite file; safe to share between threads.

    Attributes:
        path: the file.
        held: whether it shows one state until it is closed.
        is_closed: whether nothing can be read any more.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        mark: _Mark | None = None,
        *,
        held: bool = False,
    ) -> None:
        self.path = path
        self._connection = connection
        self._mark = mark
        self.held = held
        self.is_closed = False
        self._whole_path = path.resolve()
        self._lock = threading.RLock()

    @classmethod
    def write(cls, path: Path, mode: Literal["rw", "rwc"], synchronous: Synchronous) -> Self:
        """Return the file open for writing, in write-ahead mode.

        Args:
            path: the file.
            mode: "rwc" makes it.
            synchronous: how much a commit waits for the disk.

        Raises:
            ChainError: it cannot be opened or made.
        """
        with translated(path):
            pragmas = ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}")
            return cls(path, _connect(path, f"mode={mode}", *pragmas))

    @classmethod
    def read(cls, path: Path, *, held: bool = False) -> Self:
        """Return the file open for reading, whoever may write to it and to its folder.

        Args:
            path: the file.
            held: whether it shows one state until it is closed.

        Raises:
            ChainError: it cannot be read, or not without writing beside it.
        """
        connection, mark = _reading(path)
        if held:
            with translated(path):
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        return cls(path, connection, mark, held=held)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query.

        Args:
            query: SQL with placeholders.
            parameters: their values.

        Raises:
            NotServedError: somebody writes, and this user takes no part in the locks.
            ChainError: the file cannot be read, is damaged or closed.
        """
        with self._lock, translated(self.path):
            for _ in range(_TRIES):
                self._follow()
                found = self._read_once(query, parameters)
                if found is not None:
                    return found
            raise self._moved()

    def _read_once(self, query: str, parameters: Sequence[object]) -> list[Any] | None:
        """Return all rows; None where the file has changed meanwhile.

        Raises:
            DatabaseError: what is still there cannot be read.
        """
        try:
            found = self._connection.execute(query, parameters).fetchall()
        except sqlite3.DatabaseError:
            if self._is_still():
                raise
            return None
        return found if self._is_still() else None

    def scan(self, query: str) -> Iterator[Any]:
        """Yield the rows of a query one by one.

        Args:
            query: SQL without placeholders.

        Yields:
            A row.
        """
        with self._lock, translated(self.path):
            self._follow()
            yield from self._connection.execute(query)
            if not self._is_still():
                raise self._moved()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write whole or not at all.

        Yields:
            What to write through; others wait until it is done.

        Raises:
            ChainError: the disk refuses.
        """
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
        """How long the write-ahead log is."""
        return size_of(self._whole_path, "-wal")

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file, durably; return whether it is empty now.

        A reader that holds an older state keeps what it needs in the log; nobody is waited for.

        Raises:
            ChainError: the disk refuses.
        """
        with self._lock, translated(self.path):
            self._connection.execute("PRAGMA busy_timeout = 0")
            try:
                moved = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                patience = int(_PATIENCE_SECONDS * 1000)
                self._connection.execute(f"PRAGMA busy_timeout = {patience}")
        return bool(moved[0] == 0)

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        with self._lock:
            self.is_closed = True
            self._connection.close()

    def _is_still(self) -> bool:
        return self._mark is None or _mark_of(self._whole_path) == self._mark

    def _follow(self) -> None:
        """Open an immutable file again after somebody has written to it."""
        if self._is_still():
            return
        if self.held:
            raise self._moved()
        self._connection.close()
        self._connection, self._mark = _reading(self.path)

    def _moved(self) -> NotServedError:
        return NotServedError(
            f"{self.path}: somebody writes to this chain, and this user cannot take part in its "
            "locks; try again when the writer has ended"
        )


def _reading(path: Path) -> tuple[sqlite3.Connection, _Mark | None]:
    """Return a connection that cannot write, and a mark where the file is read as immutable.

    Raises:
        ChainError: this user may not read it, or not without writing beside it.
    """
    with translated(path):
        if (shared := _connected(path, "mode=ro")) is not None:
            return shared, None
        mark = _mark_of(path.resolve())
        if mark.waiting_bytes:
            raise ChainError(
                f"{path}: its newest blocks wait in {path.name}-wal, and to read them SQLite must "
                "write beside it, which this user may not; let the owner's writer open and close "
                "the chain, or copy chain and -wal to a folder of your own"
            )
        if (alone := _connected(path, "mode=ro&immutable=1")) is None:
            raise ChainError(f"{path}: this user may not read the chain file")
        return alone, mark


def _connected(path: Path, options: str) -> sqlite3.Connection | None:
    """Return a connection to read from; None where its user lacks the permissions for it.

    Raises:
        OperationalError: the file is locked, or there is another hindrance.
    """
    try:
        return _connect(path, options, *_TO_READ)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _NOT_PERMITTED:
            return None
        raise


def _mark_of(path: Path) -> _Mark:
    # Never opened and closed here: that would end this process's own locks on it.
    try:
        status = path.stat()
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}") from error
    waiting = size_of(path, "-wal") + size_of(path, "-journal")
    return _Mark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, waiting)


def size_of(path: Path, suffix: str) -> int:
    """Return how many bytes one of SQLite's files beside another holds; 0 where there is none.

    Args:
        path: the file itself, not a link to it: SQLite puts its own beside the former.
        suffix: "-wal" or "-journal".
    """
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
        timeout=_PATIENCE_SECONDS,
    )
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(connection.close)
        for statement in statements:
            connection.execute(statement).fetchall()
        unless_done.pop_all()
    return connection


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into a `ChainError` that names the file.

    Args:
        path: the SQLite file.

    Raises:
        ChainDamagedError: SQLite calls the file damaged.
        ChainError: something else went wrong.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        kind = ChainDamagedError if _says_damaged(error) else ChainError
        summary = " ".join(str(error).split())[:200]
        raise kind(f"{path}: {summary}") from error


def _says_damaged(error: Exception) -> bool:
    # OperationalError covers a locked file and a full disk, and also text that is none; what SQLite
    # calls corruption is a plain DatabaseError ("malformed", "not a database").
    return (
        type(error) is sqlite3.DatabaseError
        or isinstance(error, UnicodeError)
        or str(error).startswith("Could not decode to UTF-8")
    )
