"""Charges of each writer's uploads in each round, on disk, so that a restart forgets nothing.

A charge is made before the bytes arrive, so that a client cannot exceed its quota by sending many
blobs at once, and taken back if they do not. The same bytes are charged once, however often they
are being sent: a header that somebody has seen can be shown again, with any bytes under it. Bytes
that the store has already cost nothing, but are noted: their round needs them.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from api.store.auditors import Writer, writer_of
from ledger.protocol.types import Digest, Domain, Upload

_SCHEMA = """
CREATE TABLE IF NOT EXISTS charged (  -- client: index of a client, or address of an auditor
    round BLOB NOT NULL, client INTEGER NOT NULL, kind INTEGER NOT NULL, digest BLOB NOT NULL,
    size INTEGER NOT NULL, costs INTEGER NOT NULL,
    PRIMARY KEY (round, client, kind, digest)
) WITHOUT ROWID
"""
_THIS_ROW = "FROM charged WHERE round = ? AND client = ? AND kind = ? AND digest = ?"


class ChargeKind(IntEnum):
    """Kinds of uploads, each with its quota."""

    BLOB = 1
    ENVELOPE = 2
    ATTESTATION = 3


_Key = tuple[bytes, Writer, int, bytes]


@dataclass(slots=True)
class _Arrival:
    """Attempts to upload the same bytes.

    Attributes:
        settled: size and costs of the row if all attempts fail; None for no row.
    """

    settled: tuple[int, int] | None
    sizes: list[int] = field(default_factory=list)

    @property
    def charged(self) -> int:
        paid = self.settled[0] if self.settled is not None and self.settled[1] else 0
        return max(paid, *self.sizes, 0)


class Charges:
    """The charges of one contract's clients; safe to share between threads.

    Every method raises OSError where the file cannot be used.

    Args:
        path: an SQLite file; made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._arrivals: dict[_Key, _Arrival] = {}
        with self._translated():
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_SCHEMA)

    def charge(self, upload: Upload, kind: ChargeKind, quota: tuple[int, int]) -> bool:
        """Charge a client for an upload until `settle`; return False if its quota is too small.

        Args:
            quota: number and bytes of a round's uploads.
        """
        key = _key(upload, kind)
        with self._lock, self._translated():
            count, total = self._file.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM charged "
                "WHERE round = ? AND client = ? AND kind = ? AND costs AND digest <> ?",
                key,
            ).fetchone()
            arrival = self._arrivals.get(key) or _Arrival(self._row(key))
            size = max(arrival.charged, upload.size)
            if count + 1 > quota[0] or total + size > quota[1]:
                return False
            arrival.sizes.append(upload.size)
            self._put_row(key, (size, 1))
            self._arrivals[key] = arrival
        return True

    def settle(self, upload: Upload, kind: ChargeKind, *, is_stored: bool) -> None:
        """Make a charge final, or take it back because the bytes did not arrive.

        Earlier charges and notes of the same bytes stay: a failed repetition takes nothing back.
        """
        key = _key(upload, kind)
        with self._lock, self._translated():
            arrival = self._arrivals[key]
            arrival.sizes.remove(upload.size)
            if not arrival.sizes:
                del self._arrivals[key]
            if is_stored:
                arrival.settled = (upload.size, 1)
            self._put_row(key, (arrival.charged, 1) if arrival.sizes else arrival.settled)

    def note(self, upload: Upload, kind: ChargeKind) -> None:
        """Note that a round needs bytes which the store has already."""
        key = _key(upload, kind)
        with self._lock, self._translated():
            arrival = self._arrivals.get(key)
            if arrival is not None and arrival.settled is None:
                arrival.settled = (upload.size, 0)
            self._file.execute(
                "INSERT OR IGNORE INTO charged VALUES (?, ?, ?, ?, ?, 0)", (*key, upload.size)
            )

    def blobs_of(self, round_number: int) -> set[Digest]:
        """Return the blobs that clients have put, or needed, in a round."""
        with self._lock, self._translated():
            rows = self._file.execute(
                "SELECT digest FROM charged WHERE round = ? AND kind = ?",
                (_number(round_number), ChargeKind.BLOB),
            ).fetchall()
        return {Digest(bytes(row[0])) for row in rows}

    def rounds(self) -> list[int]:
        """Return the rounds that have charges of clients, ascending."""
        with self._lock, self._translated():
            rows = self._file.execute(
                "SELECT DISTINCT round FROM charged WHERE kind <> ? ORDER BY round",
                (ChargeKind.ATTESTATION,),
            )
            return [int.from_bytes(row[0]) for row in rows.fetchall()]

    def forget(self, round_number: int) -> None:
        """Drop the charges of a round that no client can write to any more.

        Those of attestations stay, as attestations do: an auditor can write to an old round.
        """
        with self._lock, self._translated():
            self._file.execute(
                "DELETE FROM charged WHERE round = ? AND kind <> ?",
                (_number(round_number), ChargeKind.ATTESTATION),
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _row(self, key: _Key) -> tuple[int, int] | None:
        row = self._file.execute(f"SELECT size, costs {_THIS_ROW}", key).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def _put_row(self, key: _Key, row: tuple[int, int] | None) -> None:
        if row is None:
            self._file.execute(f"DELETE {_THIS_ROW}", key)
        else:
            self._file.execute(
                "INSERT OR REPLACE INTO charged VALUES (?, ?, ?, ?, ?, ?)", key + row
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into the system's, a full disk among them."""
        try:
            yield
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            number = errno.ENOSPC if is_full else errno.EIO
            reason = f"the charges cannot be written: {error}"
            raise OSError(number, reason, str(self._path)) from error


def charges_file(folder: Path, domain: Domain) -> Path:
    """Return the path of a contract's charges in a store's folder."""
    return folder / f"charges-{domain.chain_id}-{domain.contract.hex()}-{domain.salt.hex()}.sqlite"


def other_charges(folder: Path, domain: Domain) -> list[Path]:
    """Return the charges of other contracts whose store this folder has been."""
    own = charges_file(folder, domain)
    return sorted(path for path in folder.glob("charges-*.sqlite") if path != own)


def _key(upload: Upload, kind: ChargeKind) -> _Key:
    return _number(upload.round), writer_of(upload), int(kind), upload.digest


def _number(round_number: int) -> bytes:
    """Return a round as SQLite orders it, whose own integers end at 2**63."""
    return round_number.to_bytes(8)
