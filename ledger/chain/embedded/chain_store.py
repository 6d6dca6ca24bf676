"""The storage of the embedded chain: one SQLite database, one writer, any number of readers.

Table `meta` identifies the chain, `kv` has what the EVM stores (headers, trie nodes, code,
lookups), `logs` has the blocks' logs for searching. A block is written in one SQLite transaction
across all three, so readers and crashes see the whole block or nothing. Readers open the file
read-only and never take the writer's lock.

The row id is `block << 20 | log index`: chain order, contained in every index, so a range of blocks
is a range of row ids. The index of a query is chosen here: SQLite, without statistics, would
consider contract and event more selective than, for example, a round number in the second topic.

In write-ahead mode a reader shares memory with the writer in `<file>-shm`. If that file cannot be
made (a read-only mount, another user's folder), a file without write-ahead log is opened as
immutable: without locks, so the reader itself checks whether it was written to meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from urllib.parse import quote

import rlp  # type: ignore[import-untyped]
from trie.exceptions import MissingTrieNode

from ledger.chain import ports
from ledger.protocol.encoding import keccak, to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import ReceiptAPI

    from ledger.chain.embedded.reader import StoredReceipt

Synchronous = Literal["FULL", "NORMAL"]  # a block survives a power cut, or a killed process
_BUSY_SECONDS = 10.0

# What changes when somebody writes to a file opened as immutable: device, inode, size, time in ns,
# and bytes that wait in its side files.
_Mark = tuple[int, int, int, int, int]

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
    block_number: int, first_log: int, transaction_hash: bytes, receipt: StoredReceipt | ReceiptAPI
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
    block_number: int,
    transaction_hashes: Sequence[bytes],
    receipts: Sequence[StoredReceipt | ReceiptAPI],
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


# The letters CMFL: not the id of a public chain, which prevents replays.
DEFAULT_CHAIN_ID = 0x434D464C
SALT_BITS = 22


def fresh_chain_id(salt: int) -> int:
    """Return the chain id of a new embedded chain: the letters CMFL and the salt, below 2**53.

    Runs of one configuration have the same contract address. On chains with one id, a signature of
    one run is valid in the other, and two different honest votes would prove an equivocation. So a
    chain for keys of owners has a random salt. A simulation's keys are public, and its salt
    follows from its configuration. JavaScript wallets take ids below 2**53.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt % (1 << SALT_BITS)


SCHEMA_VERSION = 1
META_KEYS = frozenset({"schema", "chain_id", "fork", "genesis_hash"})
FORK = "Prague"

# py-evm's keys (`eth.db.schema.SchemaV1`); a block's header is under its hash.
HEAD_KEY = b"v1:canonical_head_hash"  # to the newest block's hash


def number_key(block_number: int) -> bytes:
    """Return the key of a block's hash."""
    return f"block-number-to-hash:{block_number}".encode()


def transaction_key(transaction_hash: bytes) -> bytes:
    """Return the key of a transaction's block number and index."""
    return f"transaction-hash-to-block:{transaction_hash!r}".encode()


class ChainStore:
    """An open chain file, or one state of it (a snapshot); safe to share between threads."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, mark: _Mark | None = None
    ) -> None:
        self.path = path
        self._connection = connection
        self._mark = mark
        self.is_snapshot = self.is_closed = False
        self.is_fixed = False  # whether SQLite lets no other process change what is read
        self._whole_path = path.resolve()
        self._identity = _identity(path)
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path, synchronous: Synchronous = "FULL") -> Self:
        """Return a new, empty store, which is not a chain before `initialise`."""
        store = cls._write(path, "rwc", synchronous)
        if store.rows("SELECT name FROM sqlite_master LIMIT 1"):
            store.close()
            raise ChainError(f"{path}: exists; open it, or choose another path")
        return store

    @classmethod
    def open(
        cls, path: Path, synchronous: Synchronous | None = None, *, is_snapshot: bool = False
    ) -> Self:
        """Return an existing store with a valid meta table, open for writing, or reading (None)."""
        if not path.is_file():
            raise ChainError(f"{path}: no such chain file")
        if synchronous is None:
            store = cls._read(path, is_snapshot=is_snapshot)
        else:
            require_one_name(path)
            store = cls._write(path, "rw", synchronous)
        try:
            store.verify_meta()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def is_blank(cls, path: Path) -> bool:
        if not path.is_file():
            raise ChainError(f"{path}: is not a file")
        # A killed process's journal has to be rolled back before the file can be read. Otherwise
        # nothing is written: closing a writer would discard the rest of a damaged -wal.
        undo = _size_of(path.resolve(), "-journal")
        file = cls._write(path, "rw", "FULL") if undo else cls._read(path)
        try:
            return not file.rows("SELECT name FROM sqlite_master LIMIT 1")
        finally:
            file.close()

    @classmethod
    def _write(cls, path: Path, mode: Literal["rw", "rwc"], synchronous: Synchronous) -> Self:
        """Return the file open for writing, in write-ahead mode; mode "rwc" creates it."""
        with _translated(path):
            pragmas = ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}")
            return cls(path, _connect(path, f"mode={mode}", *pragmas))

    @classmethod
    def _read(cls, path: Path, *, is_snapshot: bool = False) -> Self:
        """Return the file open for reading, whatever permissions its folder has."""
        connection, mark = _reading(path)
        file = cls(path, connection, mark)
        if is_snapshot:
            file.rows("BEGIN")
            file.rows("SELECT 1 FROM sqlite_master LIMIT 1")
            file.is_snapshot, file.is_fixed = True, mark is None
        return file

    def verify_meta(self) -> None:
        rows = self.rows("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
        statements = {sql for (sql,) in rows}
        if not statements:
            raise ports.ChainDamagedError(f"{self.path}: this SQLite file does not contain a chain")
        # Whole statements: a trigger or a view could falsify rows.
        if statements != set(_STATEMENTS):
            raise ports.ChainDamagedError(f"{self.path}: does not have a chain's tables")
        meta = self.meta()
        if missing := sorted(META_KEYS - meta.keys()):
            raise ports.ChainDamagedError(f"{self.path}: the chain lacks {', '.join(missing)}")
        if (version := meta["schema"]) != str(SCHEMA_VERSION):
            fact = f"{self.path}: written in format {version}, this program reads {SCHEMA_VERSION}"
            raise ChainError(fact)

    def meta(self) -> dict[str, str]:
        return dict(self.rows("SELECT name, value FROM meta"))

    def get(self, key: bytes) -> bytes | None:
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
            fact = f"{self.path}: another file, or none, has this name now; nothing was written"
            raise ChainError(fact)
        with self.transaction() as connection:
            if self.get(HEAD_KEY) != parent:
                raise ports.ChainLockedError(
                    f"{self.path}: another process has added blocks since this writer opened it; "
                    "nothing was written"
                )
            _write_block(connection, values, logs)

    def initialise(self, meta: Mapping[str, str], values: Mapping[bytes, bytes | None]) -> None:
        """Turn the empty store into a chain, atomically: tables, all `META_KEYS`, and block 0."""
        with self.transaction() as connection:
            for statement in _STATEMENTS:
                connection.execute(statement)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            _write_block(connection, values, ())

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._lock, _translated(self.path):
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
        with self._lock, _translated(self.path):
            self._follow()
            yield from self._connection.execute(query)
            if not self._is_still():
                raise self._moved()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose statements are committed together, or not at all."""
        with self._lock, _translated(self.path):
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
        return _size_of(self._whole_path, "-wal")

    def checkpoint(self) -> bool:
        """Move the log durably into the file, except what readers need; return if it is empty."""
        with self._lock, _translated(self.path):
            self._connection.execute("PRAGMA busy_timeout = 0")
            try:
                moved = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
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

    def _moved(self) -> ports.NotServedError:
        return ports.NotServedError(
            f"{self.path}: another process writes to this chain, and this user cannot use its "
            "locks; try again when the writer has ended"
        )


HASH_BYTES = 32


class Overlay:
    """The store's values, verified ones cached, under the uncommitted writes of an EVM."""

    def __init__(self, store: ChainStore) -> None:
        self._store = store
        self.pending: dict[bytes, bytes | None] = {}  # None means deleted
        self._verified: dict[bytes, bytes] = {}
        self._verified_bytes = 0

    def __getitem__(self, key: bytes) -> bytes:
        value = self.pending[key] if key in self.pending else self._stored(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.pending[key] = value

    def __delitem__(self, key: bytes) -> None:
        if key not in self:
            raise KeyError(key)
        self.pending[key] = None

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, bytes), "the keys of the store"
        if key in self.pending:
            return self.pending[key] is not None
        return key in self._verified or self._store.get(key) is not None

    def _stored(self, key: bytes, committed: bytes | None = None) -> bytes | None:
        """Return a value, cached if its key is its verified hash, or if no value can change."""
        if key in self._verified:
            return self._verified[key]
        value = self._store.get(key) if committed is None else committed
        is_hash = len(key) == HASH_BYTES
        if value is None or not (is_hash or self._store.is_fixed):
            return value
        if is_hash and keccak(value) != key:
            fact = f"{self._store.path}: the value stored under 0x{key.hex()} has another hash"
            raise ports.ChainDamagedError(fact)
        if self._verified_bytes > 2**24:
            self._verified.clear()
            self._verified_bytes = 0
        self._verified[key] = value
        self._verified_bytes += len(value)
        return value

    def committed(self) -> None:
        for key, value in self.pending.items():
            if value is not None and len(key) == HASH_BYTES:
                self._stored(key, value)
        self.pending.clear()


MOST_NODES = 8192  # in a cache; one more empties it: at most some 20 MB
_BRANCH_ITEMS = 17
BLANK_ROOT = keccak(rlp.encode(b""))  # of an empty trie

Node = tuple[Any, ...]


class TrieNodes:
    """The nodes of all tries of a database, which has them by hash and verifies them."""

    def __init__(self, database: Overlay | Mapping[bytes, bytes]) -> None:
        self._database = database
        self._nodes: dict[bytes, Node] = {}

    def value(self, root: bytes, key: bytes) -> bytes:
        """Return the value of a key, empty if there is none; no key is a prefix of another."""
        path, depth = key.hex(), 0
        child: Any = b"" if root == BLANK_ROOT else root
        while child:
            node = child
            if isinstance(child, bytes):
                node = self._nodes.get(child) or self._read(child, root, key)
            if len(node) == _BRANCH_ITEMS:
                child = node[int(path[depth], 16)]
                depth += 1
                continue
            nibbles, is_leaf, child = node
            if is_leaf:
                return bytes(child) if path[depth:] == nibbles else b""
            if not path.startswith(nibbles, depth):
                return b""
            depth += len(nibbles)
        return b""

    def leaves(self, root: bytes) -> Iterator[bytes]:
        """Yield the values of a trie that is not empty, after reading each of its nodes once."""
        waiting: list[Any] = [root]
        seen: set[Any] = set()  # a forger's node may have one child in all places
        while waiting:
            if (child := waiting.pop()) in seen:
                continue
            seen.add(child)
            node = self._read(child, root, b"") if isinstance(child, bytes) else child
            if len(node) == _BRANCH_ITEMS:
                waiting += filter(None, node)
            elif node[1]:
                yield bytes(node[2])
            else:
                waiting.append(node[2])

    def _read(self, hash_: bytes, root: bytes, key: bytes) -> Node:
        try:
            encoded = self._database[hash_]
        except KeyError as error:
            raise MissingTrieNode(hash_, root, key) from error  # type: ignore[arg-type]
        if len(self._nodes) >= MOST_NODES:
            self._nodes.clear()
        node = self._nodes[hash_] = _decoded(rlp.decode(encoded))
        return node


def _decoded(node: list[Any]) -> Node:
    """Return a branch as its 17 items, another node as (nibbles, whether it is a leaf, item)."""
    if len(node) == _BRANCH_ITEMS:
        return tuple(_decoded(item) if isinstance(item, list) else item for item in node)
    path, item = node
    flags, digits = int(path.hex()[0], 16), path.hex()
    nibbles = digits[1:] if flags & 1 else digits[2:]
    return nibbles, bool(flags & 2), _decoded(item) if isinstance(item, list) else item


def _write_block(
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
            f"{path}: the file has {names} names (hard links), and another process could "
            "write through each; remove the others, or copy the file"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reading(path: Path) -> tuple[sqlite3.Connection, _Mark | None]:
    """Return a read-only connection, and a mark if the file is opened as immutable."""
    with _translated(path):
        if (shared := _connected(path, "mode=ro")) is not None:
            return shared, None
        mark = _mark_of(path.resolve())
        if mark[-1]:
            raise ChainError(
                f"{path}: the newest blocks are in {path.name}-wal, and this user may not "
                "write to its folder, as SQLite requires. Let the owner open and close the "
                "chain, or copy both files to your own folder"
            )
        if (immutable := _connected(path, "mode=ro&immutable=1")) is None:
            raise ChainError(f"{path}: this user may not read the chain file")
        return immutable, mark


def _connected(path: Path, options: str) -> sqlite3.Connection | None:
    """Return a read-only connection; None if the user lacks permissions for it."""
    try:
        statements = ("PRAGMA query_only = ON", "SELECT 1 FROM sqlite_master LIMIT 1")
        return _connect(path, options, *statements)
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
    waiting = _size_of(path, "-wal") + _size_of(path, "-journal")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, waiting


def _size_of(path: Path, suffix: str) -> int:
    """Return the size of a side file, "-wal" or "-journal", next to the database and not a link."""
    try:
        return path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0


def _connect(path: Path, options: str, *statements: str) -> sqlite3.Connection:
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
def _translated(path: Path) -> Iterator[None]:
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
        fact = f"{path}: {summary}"
        raise (ports.ChainDamagedError if is_damaged else ChainError)(fact) from error
