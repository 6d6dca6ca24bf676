"""What each client has put into a store in each round, on disk, so that a restart forgets nothing.

A charge is made before the bytes come, so that a client cannot pass its quota by sending many
blobs at once, and taken back if they do not. What is there already costs nothing, but is noted:
its round needs it.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.protocol.types import Upload

_SCHEMA = """
CREATE TABLE IF NOT EXISTS charged (
    round BLOB NOT NULL, client INTEGER NOT NULL, kind INTEGER NOT NULL, digest BLOB NOT NULL,
    size INTEGER NOT NULL, costs INTEGER NOT NULL,
    PRIMARY KEY (round, client, kind, digest)
) WITHOUT ROWID
"""


class What(IntEnum):
    """What is put; each has a quota of its own."""

    BLOB = 1
    ENVELOPE = 2


class Charges:
    """The charges of one contract's clients; safe to share between threads.

    Every method raises OSError where the file cannot be used.

    Args:
        path: an SQLite file; made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._translated():
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_SCHEMA)

    def charge(self, upload: Upload, what: What, most: tuple[int, int]) -> bool:
        """Charge a client with what it is about to send, and say whether its quota allows that.

        Args:
            upload: whose, and how much; the same bytes are charged once.
            what: of which quota.
            most: how many, and how many bytes.

        Raises:
            OSError: the file cannot be written.
        """
        key = _key(upload, what)
        with self._lock, self._translated():
            row = self._file.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM charged "
                "WHERE round = ? AND client = ? AND kind = ? AND costs AND digest <> ?",
                key,
            ).fetchone()
            if row[0] + 1 > most[0] or row[1] + upload.size > most[1]:
                return False
            self._file.execute(
                "INSERT OR REPLACE INTO charged VALUES (?, ?, ?, ?, ?, 1)", (*key, upload.size)
            )
        return True

    def note(self, upload: Upload, what: What) -> None:
        """Note that a round needs what is there already.

        Args:
            upload: whose round.
            what: it is.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock, self._translated():
            self._file.execute(
                "INSERT OR IGNORE INTO charged VALUES (?, ?, ?, ?, ?, 0)",
                (*_key(upload, what), upload.size),
            )

    def take_back(self, upload: Upload, what: What) -> None:
        """Take a charge back: the bytes did not come.

        Args:
            upload: as it was charged.
            what: as it was charged.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock, self._translated():
            self._file.execute(
                "DELETE FROM charged WHERE round = ? AND client = ? AND kind = ? AND digest = ?",
                _key(upload, what),
            )

    def blobs_of(self, round_number: int) -> set[Digest]:
        """Return the blobs that clients have put, or needed, in a round.

        Args:
            round_number: t.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock, self._translated():
            rows = self._file.execute(
                "SELECT digest FROM charged WHERE round = ? AND kind = ?",
                (_number(round_number), What.BLOB),
            ).fetchall()
        return {Digest(bytes(row[0])) for row in rows}

    def rounds(self) -> list[int]:
        """Return the rounds of which something is charged, ascending.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock, self._translated():
            rows = self._file.execute("SELECT DISTINCT round FROM charged ORDER BY round")
            return [int.from_bytes(row[0]) for row in rows.fetchall()]

    def forget(self, round_number: int) -> None:
        """Drop the charges of a round that nobody can write to any more.

        Args:
            round_number: t.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock, self._translated():
            self._file.execute("DELETE FROM charged WHERE round = ?", (_number(round_number),))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Have SQLite's errors be the system's, a full disk among them.

        Raises:
            OSError: the file cannot be used.
        """
        try:
            yield
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            number = errno.ENOSPC if full else errno.EIO
            said = f"the charges cannot be kept: {error}"
            raise OSError(number, said, str(self._path)) from error


def _key(upload: Upload, what: What) -> tuple[bytes, int, int, bytes]:
    return _number(upload.round), upload.client, int(what), upload.digest


def _number(round_number: int) -> bytes:
    """Return a round as SQLite orders it, whose own integers end at 2**63."""
    return round_number.to_bytes(8)
