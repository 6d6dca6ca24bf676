"""The storage of the embedded chain: one SQLite database, one writer, any number of readers.

Table `meta` identifies the chain, `kv` has what the EVM stores (headers, trie nodes, code,
lookups), `logs` has the blocks' logs for searching. A block is written in one SQLite transaction
across all three, so readers and crashes see the whole block or nothing. Readers open the file
read-only and never take the writer's lock.

The row id is `block << 20 | log index`: chain order, contained in every index, so a range of blocks
is a range of row ids. The index of a query is chosen here: SQLite, without statistics, would
consider contract and event more selective than, for example, a round number in the second topic.

A damaged write-ahead log and a restored backup both look like a shorter, valid chain. The note of
the newest block in `<file>.head` reveals the difference. Two slots of one disk sector each are
written in turn, after the block is durable and without waiting for the disk. A power cut leaves an
older note or the newest one, never one ahead of the chain; a torn slot leaves the other one. The
file gets its name only when both slots are durable: an empty note is damaged.

The lock is on a side file, as locking the SQLite file itself would interfere with SQLite's locks.
The operating system releases it when the process ends, so a stale lock file has no effect.

SQLite moves the write-ahead log into the file by itself, except for what a reader's view needs: an
audit that runs for an hour lets the log grow by an hour of blocks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from eth.db.schema import SchemaV1

from ledger.chain import ports
from ledger.chain.embedded.sqlite_file import SqliteFile, Synchronous, size_of
from ledger.io.home import DISK, HeldError, read_file, take_lock
from ledger.protocol.encoding import to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import ReceiptAPI


LogRow: TypeAlias = tuple[
    int, bytes, bytes, bytes | None, bytes | None, bytes | None, bytes | None, bytes
]
"""Row id, transaction hash, address, topics 0 to 3, data."""

_CREATE = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE logs (
  id INTEGER PRIMARY KEY, transaction_hash BLOB NOT NULL, address BLOB NOT NULL,
  topic0 BLOB, topic1 BLOB, topic2 BLOB, topic3 BLOB, data BLOB NOT NULL
);
CREATE INDEX logs_by_address ON logs (address);
CREATE INDEX logs_by_topic0 ON logs (topic0, address) WHERE topic0 IS NOT NULL;
CREATE INDEX logs_by_topic1 ON logs (topic1, topic0) WHERE topic1 IS NOT NULL;
CREATE INDEX logs_by_topic2 ON logs (topic2, topic0) WHERE topic2 IS NOT NULL;
CREATE INDEX logs_by_topic3 ON logs (topic3, topic0) WHERE topic3 IS NOT NULL;
"""
_STATEMENTS = [statement.strip() for statement in _CREATE.split(";") if statement.strip()]

COLUMNS = "id, transaction_hash, address, topic0, topic1, topic2, topic3, data"


def row_id(block_number: int, log_index: int) -> int:
    """Return the row id of a log, which orders logs as the chain does."""
    return block_number << 20 | log_index


def position(identifier: int) -> tuple[int, int]:
    """Return block number and log index of a row id."""
    return identifier >> 20, identifier & ((1 << 20) - 1)


def rows_of_receipt(
    block_number: int, first_log: int, transaction_hash: bytes, receipt: ReceiptAPI
) -> list[LogRow]:
    """Return the rows of a transaction's logs, after `first_log` earlier ones of the block."""
    rows: list[LogRow] = []
    for log_index, log in enumerate(receipt.logs, start=first_log):
        topics = [topic.to_bytes(32, "big") for topic in log.topics]
        topic0, topic1, topic2, topic3 = [*topics, None, None, None, None][:4]
        identifier = row_id(block_number, log_index)
        address, data = bytes(log.address), bytes(log.data)
        rows.append((identifier, transaction_hash, address, topic0, topic1, topic2, topic3, data))
    return rows


def rows_of_block(
    block_number: int, transaction_hashes: Sequence[bytes], receipts: Sequence[ReceiptAPI]
) -> list[LogRow]:
    """Return the rows of all logs of a block, in order."""
    rows: list[LogRow] = []
    for transaction_hash, receipt in zip(transaction_hashes, receipts, strict=True):
        rows += rows_of_receipt(block_number, len(rows), transaction_hash, receipt)
    return rows


def select(query: ports.LogQuery) -> tuple[str, list[object]] | None:
    """Return the SQL of a log query and its parameters; None if no log can match."""
    terms: dict[str, list[bytes]] = {}
    if query.address is not None:
        terms["address"] = [to_canonical(query.address)]
    for number, topic in enumerate(query.topics):
        if topic is not None:
            terms[f"topic{number}"] = [topic] if isinstance(topic, bytes) else list(topic)
    indexed = ("topic3", "topic2", "topic1", "topic0", "address")  # the most selective first
    if not all(terms.values()) or not terms.keys() <= {*indexed} or query.last < query.first:
        return None
    index = next((column for column in indexed if column in terms), None)
    if index is None or query.last - query.first < 64:  # a scan of so few blocks is faster
        hint = "NOT INDEXED"  # scans the row ids
    else:
        hint = f"INDEXED BY logs_by_{index}"
    conditions = ["id >= ?", "id < ?"]
    bounds = (query.first, query.last + 1)
    # The last block keeps row ids within 64 bits.
    parameters: list[object] = [row_id(min(max(number, 0), 2**40), 0) for number in bounds]
    for column, values in terms.items():
        conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
        parameters += values
    sql = (
        f"SELECT {COLUMNS} FROM logs {hint} "  # noqa: S608
        f"WHERE {' AND '.join(conditions)} ORDER BY id {'DESC' if query.descending else 'ASC'}"
    )
    if query.limit is not None:
        sql += " LIMIT ?"
        parameters.append(query.limit)
    return sql, parameters


SCHEMA_VERSION = 1
META_KEYS = frozenset({"schema", "chain_id", "fork", "genesis_hash"})
HEAD_KEY = SchemaV1.make_canonical_head_hash_lookup_key()  # to the newest block's hash


class ChainStore(SqliteFile):
    """An open chain file; safe to share between threads."""

    def __init__(self, path: Path, *opened: Any) -> None:
        super().__init__(path, *opened)
        self._identity = _identity(path)

    @classmethod
    def create(cls, path: Path, synchronous: Synchronous = "FULL") -> Self:
        """Return a new, empty store, which is not a chain before `initialise`."""
        store = cls.write(path, "rwc", synchronous)
        if store.rows("SELECT name FROM sqlite_master LIMIT 1"):
            store.close()
            raise ChainError(f"{path}: exists already; open it, or choose another path")
        return store

    @classmethod
    def open(
        cls, path: Path, synchronous: Synchronous | None = None, *, is_snapshot: bool = False
    ) -> Self:
        """Return an existing store with a valid meta table, open for writing, or reading (None)."""
        if not path.is_file():
            raise ChainError(f"{path}: no such chain file")
        if synchronous is None:
            store = cls.read(path, is_snapshot=is_snapshot)
        else:
            require_one_name(path)
            store = cls.write(path, "rw", synchronous)
        try:
            store.verify_meta()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def is_blank(cls, path: Path) -> bool:
        """Return whether a file is a SQLite database without tables."""
        # A killed process's journal has to be rolled back before the file can be read. Otherwise
        # nothing is written: closing a writer would discard the rest of a damaged -wal.
        undo = size_of(path.resolve(), "-journal")
        file = cls.write(path, "rw", "FULL") if undo else cls.read(path)
        try:
            return not file.rows("SELECT name FROM sqlite_master LIMIT 1")
        finally:
            file.close()

    def verify_meta(self) -> None:
        rows = self.rows("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
        statements = {sql for (sql,) in rows}
        if not statements:
            raise ports.ChainDamagedError(f"{self.path}: this SQLite file holds no chain")
        # Whole statements: a trigger or a view could falsify rows.
        if statements != set(_STATEMENTS):
            raise ports.ChainDamagedError(f"{self.path}: its tables are not those of a chain")
        meta = self.meta()
        if missing := sorted(META_KEYS - meta.keys()):
            raise ports.ChainDamagedError(f"{self.path}: the chain lacks {', '.join(missing)}")
        if (version := meta["schema"]) != str(SCHEMA_VERSION):
            raise ChainError(
                f"{self.path}: written in format {version}, this program reads {SCHEMA_VERSION}"
            )

    def meta(self) -> dict[str, str]:
        return dict(self.rows("SELECT name, value FROM meta"))

    def get(self, key: bytes) -> bytes | None:
        """Return a value of the EVM's storage; None if there is none."""
        for (value,) in self.rows("SELECT value FROM kv WHERE key = ?", (key,)):
            if not isinstance(value, bytes):
                raise ports.ChainDamagedError(f"{self.path}: the value of {key!r} is not bytes")
            return value
        return None

    def commit(
        self, values: Mapping[bytes, bytes | None], logs: Iterable[LogRow] = (), *, parent: bytes
    ) -> None:
        """Write a block and the EVM's storage (None deletes) atomically, and durably."""
        if _identity(self.path) != self._identity:
            raise ChainError(
                f"{self.path}: another file, or none, has this name now; nothing was written"
            )
        with self.transaction() as connection:
            if self.get(HEAD_KEY) != parent:
                raise ports.ChainLockedError(
                    f"{self.path}: another process has added blocks since this writer opened it; "
                    "nothing was written"
                )
            _write(connection, values, logs)

    def initialise(self, meta: Mapping[str, str], values: Mapping[bytes, bytes | None]) -> None:
        """Turn the empty store into a chain, atomically: tables, all `META_KEYS`, and block 0."""
        with self.transaction() as connection:
            for statement in _STATEMENTS:
                connection.execute(statement)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            _write(connection, values, ())


def _write(
    connection: sqlite3.Connection, values: Mapping[bytes, bytes | None], logs: Iterable[LogRow]
) -> None:
    stored = sorted((key, value) for key, value in values.items() if value is not None)
    deleted = [(key,) for key, value in values.items() if value is None]
    connection.executemany("INSERT OR REPLACE INTO kv VALUES (?, ?)", stored)
    connection.executemany("DELETE FROM kv WHERE key = ?", deleted)
    connection.executemany("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", logs)


def require_one_name(path: Path) -> None:
    """Reject a file with hard links: each name would have its own lock."""
    if (names := path.stat().st_nlink) > 1:
        raise ports.ChainLockedError(
            f"{path}: the file has {names} names (hard links), and under each of them another "
            "process could write; remove the others, or copy the file"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


SLOT_BYTES = 512
_DIGEST_BYTES = 32
_BODY = struct.Struct(f">8sQ32sQ32s{SLOT_BYTES - _DIGEST_BYTES - 88}x")
_MAGIC = b"cmflhead"


@dataclass(frozen=True, slots=True)
class AcknowledgedBlock:
    """A block that a writer of this home has reported as durable."""

    genesis_hash: bytes
    number: int
    hash: bytes


class HeadNote:
    """The note, open for writing."""

    def __init__(self, chain: Path, acknowledged: AcknowledgedBlock) -> None:
        """Write this block into both slots, durably, in place of any older note."""
        self._path, self._sequence = note_path(chain), 2
        try:
            # Sequence 2 goes into the first slot, as `write` expects.
            DISK.write_whole(self._path, _encode(2, acknowledged) + _encode(1, acknowledged))
            self._descriptor: int | None = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ChainError(f"{self._path}: {error.strerror}") from error

    def write(self, acknowledged: AcknowledgedBlock) -> None:
        if self._descriptor is None:
            return
        self._sequence += 1
        slot = _encode(self._sequence, acknowledged)
        try:
            os.pwrite(self._descriptor, slot, self._sequence % 2 * SLOT_BYTES)
        except OSError as error:
            raise ChainError(
                f"block {acknowledged.number} is on disk, but not noted: "
                f"{self._path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def note_path(chain: Path) -> Path:
    """Return the path of a chain file's note, next to the file that a link leads to."""
    whole = chain.resolve()
    return whole.with_name(f"{whole.name}.head")


def read_note(chain: Path) -> AcknowledgedBlock | None:
    """Return the newest acknowledged block; None if there is no note."""
    path = note_path(chain)
    for _ in range(5):  # a slot that is being written looks damaged for a moment
        try:
            content = read_file(path, 2 * SLOT_BYTES)[: 2 * SLOT_BYTES]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        slots = filter(None, (_decode(content[:SLOT_BYTES]), _decode(content[SLOT_BYTES:])))
        newest = max(slots, key=itemgetter(0), default=None)
        if newest is not None:
            return newest[1]
    raise ports.ChainDamagedError(
        f"{path}: the note of the newest acknowledged block is damaged, so it is unknown "
        "whether the chain was rolled back; --accept-rollback continues from the chain as it is"
    )


def _encode(sequence: int, acknowledged: AcknowledgedBlock) -> bytes:
    body = _BODY.pack(
        _MAGIC, sequence, acknowledged.genesis_hash, acknowledged.number, acknowledged.hash
    )
    return body + hashlib.sha256(body).digest()


def _decode(slot: bytes) -> tuple[int, AcknowledgedBlock] | None:
    """Return a slot's sequence number and block; None if it is damaged."""
    body, digest = slot[:-_DIGEST_BYTES], slot[-_DIGEST_BYTES:]
    if len(slot) != SLOT_BYTES or hashlib.sha256(body).digest() != digest:
        return None
    magic, sequence, genesis_hash, number, block_hash = _BODY.unpack(body)
    if magic != _MAGIC:
        return None
    return sequence, AcknowledgedBlock(genesis_hash, number, block_hash)


_MEANING = (
    "a backup was restored, the file was replaced, or its write-ahead log is damaged or missing. "
    "Put back the newer files, or continue from the present state with --accept-rollback"
)


def verify_not_behind(chain: ports.ChainReader, noted: AcknowledgedBlock, path: Path) -> None:
    """Verify that a chain has the newest block acknowledged here."""
    head = chain.head()
    if noted.genesis_hash != chain.genesis_hash:
        finding = f"this is another chain, of genesis 0x{chain.genesis_hash.hex()}"
    elif noted.number > head.number:
        finding = f"the chain ends with block {head.number} 0x{head.hash.hex()}"
    elif (other := chain.block(noted.number).hash) != noted.hash:
        finding = f"the chain has another block {noted.number}, 0x{other.hex()}"
    else:
        return
    raise ports.ChainRolledBackError(
        f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but {finding}: "
        f"{_MEANING}"
    )


def verify_nothing_acknowledged(path: Path) -> None:
    """Verify that no chain was acknowledged where a new one is to be created."""
    noted = read_note(path)
    if noted is not None and (not path.exists() or ChainStore.is_blank(path)):
        raise ports.ChainRolledBackError(
            f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but there "
            f"is no chain: {_MEANING}"
        )


@contextmanager
def writer_lock(chain: Path) -> Iterator[None]:
    """Hold `<chain>.lock`, next to the file that a link leads to; never wait."""
    whole = chain.resolve()
    path = whole.with_name(f"{whole.name}.lock")
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}") from error
    except HeldError as error:
        raise ports.ChainLockedError(f"{chain}: {error} writes to this chain") from error
    try:
        yield
    finally:
        os.close(descriptor)


_log = logging.getLogger(__name__)


class WriteAheadLog:
    """The write-ahead log of a chain open for writing; its readers are named over `max_bytes`."""

    def __init__(self, store: ChainStore, max_bytes: int = 64 * 2**20) -> None:
        self._store = store
        self._most_bytes = max_bytes
        self._has_warned = False

    def empty(self) -> None:
        """Make the log's content durable, and empty it unless a reader needs it."""
        if self._store.wal_bytes:
            self._store.checkpoint()

    def bound(self) -> None:
        """Checkpoint a log that is too long; only warn, once, as its blocks are durable."""
        if self._store.wal_bytes <= self._most_bytes:
            return
        hindrance: str | None = None
        try:
            if not self._store.checkpoint():
                readers = [f"process {process}" for process in readers_of(self._store.path)]
                hindrance = (
                    f"a reader holds an old view of the chain "
                    f"({', '.join(readers) or 'in this process'}); it shrinks when the reader ends"
                )
        except ChainError as error:
            hindrance = str(error)
        if hindrance is not None and not self._has_warned:
            size = self._store.wal_bytes >> 20
            _log.warning("%s-wal has grown to %d MiB: %s", self._store.path, size, hindrance)
        self._has_warned = hindrance is not None


def readers_of(chain: Path) -> list[int]:
    """Return the ids of other processes that read a chain now, as far as the system shows them."""
    try:
        inode = Path(f"{os.path.realpath(chain)}-shm").stat().st_ino
        locks = Path("/proc/locks").read_text("ascii")
    except (OSError, UnicodeError):
        return []
    readers = {_reader(line.split(), inode) for line in locks.splitlines()}
    return sorted(readers - {0, os.getpid()})


def _reader(fields: list[str], inode: int) -> int:
    """Return the process in `3: POSIX ADVISORY READ 1234 fd:01:5678 123 127`; 0 for other locks."""
    if len(fields) != 8 or fields[1] != "POSIX" or not fields[5].endswith(f":{inode}"):
        return 0
    process, first, last = fields[4], fields[6], fields[7]
    if not (process.isdigit() and first.isdigit() and last.isdigit()):
        return 0
    # SQLite's readers lock the bytes 123 to 127 of `-shm`.
    return int(process) if int(first) <= 127 and int(last) >= 123 else 0
