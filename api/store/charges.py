"""What each client has put into a store in each round, on disk, so that a restart forgets nothing.

A charge is made before the bytes come, so that a client cannot pass its quota by sending many
blobs at once, and taken back if they do not. The same bytes are charged once, however often they
are being sent: whoever has seen a header can show it again, and send anything under it. What is
there already costs nothing, but is noted: its round needs it.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.protocol.types import Domain, Upload

_SCHEMA = """
CREATE TABLE IF NOT EXISTS charged (
    round BLOB NOT NULL, client INTEGER NOT NULL, kind INTEGER NOT NULL, digest BLOB NOT NULL,
    size INTEGER NOT NULL, costs INTEGER NOT NULL,
    PRIMARY KEY (round, client, kind, digest)
) WITHOUT ROWID
"""
_ITS_ROW = "FROM charged WHERE round = ? AND client = ? AND kind = ? AND digest = ?"


class ChargeKind(IntEnum):
    """What is put; each has a quota of its own."""

    BLOB = 1
    ENVELOPE = 2


_Key = tuple[bytes, int, int, bytes]


@dataclass(slots=True)
class _Coming:
    """What is on its way under one name.

    Attributes:
        left: size and costs of the row that stays if nothing more comes of it; None for none.
        sizes: that were announced, one for each attempt.
    """

    left: tuple[int, int] | None
    sizes: list[int] = field(default_factory=list)

    @property
    def charged(self) -> int:
        """What is charged for all of it: the most that was announced, or has come."""
        known = self.left[0] if self.left is not None and self.left[1] else 0
        return max(known, *self.sizes, 0)


class Charges:
    """The charges of one contract's clients; safe to share between threads.

    Every method raises OSError where the file cannot be used.

    Args:
        path: an SQLite file; made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._coming: dict[_Key, _Coming] = {}
        with self._translated():
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_SCHEMA)

    def charge(self, upload: Upload, what: ChargeKind, most: tuple[int, int]) -> bool:
        """Charge a client with what it is about to send, and say whether its quota allows that.

        Args:
            upload: whose, and how much; to be settled once it has come or not.
            what: of which quota.
            most: how many, and how many bytes.

        Raises:
            OSError: the file cannot be written.
        """
        key = _key(upload, what)
        with self._lock, self._translated():
            rows = self._file.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM charged "
                "WHERE round = ? AND client = ? AND kind = ? AND costs AND digest <> ?",
                key,
            ).fetchone()
            coming = self._coming.get(key) or _Coming(self._row(key))
            size = max(coming.charged, upload.size)
            if rows[0] + 1 > most[0] or rows[1] + size > most[1]:
                return False
            coming.sizes.append(upload.size)
            self._put_row(key, (size, 1))
            self._coming[key] = coming
        return True

    def settle(self, upload: Upload, what: ChargeKind, *, is_kept: bool) -> None:
        """Let a charge stand, or take it back because the bytes did not come.

        Whatever was charged or noted of the same bytes before stays: who sends them once more,
        and not whole, has not brought them less.

        Args:
            upload: as it was charged.
            what: as it was charged.
            is_kept: whether the bytes have come.

        Raises:
            OSError: the file cannot be written.
        """
        key = _key(upload, what)
        with self._lock, self._translated():
            coming = self._coming[key]
            coming.sizes.remove(upload.size)
            if not coming.sizes:
                del self._coming[key]
            if is_kept:
                coming.left = (upload.size, 1)
            self._put_row(key, (coming.charged, 1) if coming.sizes else coming.left)

    def note(self, upload: Upload, what: ChargeKind) -> None:
        """Note that a round needs what is there already.

        Args:
            upload: whose round.
            what: it is.

        Raises:
            OSError: the file cannot be written.
        """
        key = _key(upload, what)
        with self._lock, self._translated():
            coming = self._coming.get(key)
            if coming is not None and coming.left is None:
                coming.left = (upload.size, 0)
            self._file.execute(
                "INSERT OR IGNORE INTO charged VALUES (?, ?, ?, ?, ?, 0)", (*key, upload.size)
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
                (_number(round_number), ChargeKind.BLOB),
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

    def _row(self, key: _Key) -> tuple[int, int] | None:
        row = self._file.execute(f"SELECT size, costs {_ITS_ROW}", key).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def _put_row(self, key: _Key, row: tuple[int, int] | None) -> None:
        if row is None:
            self._file.execute(f"DELETE {_ITS_ROW}", key)
        else:
            self._file.execute(
                "INSERT OR REPLACE INTO charged VALUES (?, ?, ?, ?, ?, ?)", key + row
            )

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


def charges_file(folder: Path, domain: Domain) -> Path:
    """Return where the charges of a contract's clients are kept.

    Args:
        folder: of the store.
        domain: the contract on its chain.
    """
    return folder / f"charges-{domain.chain_id}-{domain.contract.hex()}-{domain.salt.hex()}.sqlite"


def other_charges(folder: Path, domain: Domain) -> list[Path]:
    """Return the charges of other contracts whose store a folder has been.

    Args:
        folder: of the store.
        domain: the contract on its chain.
    """
    own = charges_file(folder, domain)
    return sorted(path for path in folder.glob("charges-*.sqlite") if path != own)


def _key(upload: Upload, what: ChargeKind) -> _Key:
    return _number(upload.round), upload.client, int(what), upload.digest


def _number(round_number: int) -> bytes:
    """Return a round as SQLite orders it, whose own integers end at 2**63."""
    return round_number.to_bytes(8)
