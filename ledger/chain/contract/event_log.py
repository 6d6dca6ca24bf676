"""A contract's log, verified to be complete: it folds to the contract's own storage.

A node may leave logs out: a load balancer with one node behind the others, a pruned or damaged
index, or a false answer. Conclusions from the absence of a log (the round is open, no client was
banned) are therefore drawn here: from all logs up to one block, checked against `state()` after the
same block. A caller that polls keeps one `EventLog`, which reads new blocks only.

Every record moves the contract's storage. A batch of clients moves the registry still to come, and
a commitment moves the running digest of the round's commitments. A ban moves the head, and the end
of a round moves head and number. The fold recomputes heads and digests, so events that lead to the
storage are complete, and unaltered in everything that a head commits to.

For a remote node, `EventTable` keeps the verified logs in a file, so that a restart reads new
blocks only. The logs in the file are folded and compared with `state()`, too. If they differ, the
node is read from the beginning. Hashes of transactions and blocks in a log have no proof,
neither from a node nor from the file: an audit reads them from the chain.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ledger.chain import ports
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainReader, Log
from ledger.chain.round_ledger import LedgerSnapshot, RecordedEvent
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage, LedgerView

_logger = logging.getLogger(__name__)


def view_after(view: LedgerView, events: Iterable[RecordedEvent]) -> LedgerView:
    """Return the state after further events, oldest first."""
    for recorded in events:
        view = view.after(recorded.event, recorded.block_number)
    return view


def storage_difference(view: LedgerView, storage: LedgerSnapshot) -> str | None:
    """Return how the storage after the last event differs from what the events lead to, or None."""
    if view.deployments != 1:
        return f"the logs deploy the contract {view.deployments} times"
    fixed = view.deployment
    if view.registry_digest(storage.registry_rest) != fixed.registry:
        return (
            f"the logs register {len(view.registry)} clients, and the contract was deployed for "
            f"{fixed.clients}, of whom it has {storage.registered}"
        )
    expected = LedgerSnapshot.of(view, storage.registry_rest)
    for each in fields(LedgerSnapshot):
        from_logs, stored = getattr(expected, each.name), getattr(storage, each.name)
        if from_logs != stored:
            fact = f"the logs lead to {each.name} {_shown(from_logs)}"
            return f"{fact}, and the contract has {_shown(stored)}"
    return None


def require_complete(
    view: LedgerView, storage: LedgerSnapshot, block_number: int, node: str | None
) -> None:
    """Raise an IncompleteLogsError unless the events so far lead to the storage after a block."""
    difference = storage_difference(view, storage)
    if difference is not None:
        raise ports.IncompleteLogsError(node, f"up to block {block_number} {difference}")


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.name.lower() if isinstance(value, LedgerStage) else str(value)


ATTEMPTS = 3  # readings after which a chain that is reorganised during each is given up
_NUMBER = attrgetter("block_number")


@dataclass(frozen=True, slots=True)
class _Folded:
    """All logs up to a block, and the state that they lead to."""

    number: int
    hash: bytes
    logs: tuple[Log, ...]
    view: LedgerView
    is_verified: bool
    """Whether this process has compared that state with the contract's."""


class EventLog:
    """Incremental reader of a contract's verified log. Safe to share between threads."""

    def __init__(self, table: EventTable | None = None) -> None:
        """Read nothing yet; a table gives what was verified earlier, and keeps what will be."""
        self._lock = threading.Lock()
        self._known: _Folded | None = None
        self._table = table
        self._is_loaded = table is None
        self._kept = -1  # number of the block up to which the table holds these logs

    def up_to(self, ledger: CommitteeLedger, block: Block | None = None) -> CommitteeLedger:
        """Return a contract as of a block (None for the newest), with all of its events so far."""
        chain, moved = ledger.chain, 0
        for _ in range(ATTEMPTS if block is None else 1):
            target = chain.head() if block is None else block
            with self._lock:
                logs = self._read(ledger, target)
            if logs is not None:
                view, fixed = _PinnedChain(chain, target, ledger.address, logs), ledger.deployment()
                return CommitteeLedger(view, ledger.address, ledger.from_block, fixed)
            moved = target.number
        raise ports.ChainMovedError(chain.node, moved)

    def _read(self, ledger: CommitteeLedger, target: Block) -> tuple[Log, ...] | None:
        chain = ledger.chain
        if not self._is_loaded:
            self._load(ledger)
        known = self._known
        if known is not None and not self._continues(chain, known, target):
            known = self._cut_back(ledger, known, target)
        if known is not None and target.number <= known.number and known.is_verified:
            if target.hash != known.hash and not _holds(chain, target.number, target.hash):
                return None
            return known.logs[: bisect_right(known.logs, target.number, key=_NUMBER)]
        first = ledger.from_block if known is None else known.number + 1
        new_logs = []
        if first <= target.number:
            new_logs = chain.logs(ports.LogQuery(ledger.address, [], first, target.number))
        state = ledger.state(target.number)
        if not _holds(chain, target.number, target.hash):
            return None
        view = LedgerView.at_deployment(ledger.deployment()) if known is None else known.view
        try:
            view = view_after(view, ledger.possible(new_logs))
            require_complete(view, state, target.number, chain.node)
        except ports.NotServedError:
            if known is None or known.is_verified:
                raise
            # Either the table is wrong or the node: the node alone has to answer now.
            self._known, self._kept = None, -1
            return self._read(ledger, target)
        logs = (*(() if known is None else known.logs), *new_logs)
        self._known = _Folded(target.number, target.hash, logs, view, is_verified=True)
        self._save(ledger)
        return logs

    def _continues(self, chain: ChainReader, known: _Folded, target: Block) -> bool:
        if (known.number, known.hash) == (target.number, target.hash):
            return True
        if not known.is_verified and known.number > target.number:
            return False
        return _holds(chain, known.number, known.hash, target.number)

    def _cut_back(self, ledger: CommitteeLedger, known: _Folded, target: Block) -> _Folded | None:
        """Return the logs up to the last block with an event that the chain still holds."""
        chain = ledger.chain
        logs = known.logs[: bisect_right(known.logs, target.number, key=_NUMBER)]
        places = sorted({(log.block_number, log.block_hash) for log in logs})
        held = bisect_left(places, True, key=lambda place: not _holds(chain, *place))
        number, block_hash = places[held - 1] if held else (-1, b"")
        self._kept = min(self._kept, number)
        self._known = None
        if held:
            logs = logs[: bisect_right(logs, number, key=_NUMBER)]
            view = view_after(LedgerView.at_deployment(ledger.deployment()), ledger.possible(logs))
            self._known = _Folded(number, block_hash, logs, view, known.is_verified)
        return self._known

    def _load(self, ledger: CommitteeLedger) -> None:
        view = LedgerView.at_deployment(ledger.deployment())
        self._is_loaded = True
        try:
            logs = () if self._table is None else self._table.load(ledger)
            if not logs:
                return
            *logs, newest = logs
            view = view_after(view, ledger.possible(logs))
        except ChainError as error:
            fact = "kept events of %s are wrong, and read again: %s"
            _logger.warning(fact, ledger.address, error)
            return
        number = newest.block_number
        self._known = _Folded(number, newest.block_hash, tuple(logs), view, is_verified=False)
        self._kept = number

    def _save(self, ledger: CommitteeLedger) -> None:
        known, kept = self._known, self._kept
        if self._table is None or known is None:
            return
        last = known.logs[-1].block_number if known.logs else -1
        if kept < 0 or last > kept or known.number >= kept + IDLE_BLOCKS:
            newest = known.number, known.hash
            if self._table.save(ledger, known.logs, newest, is_new=kept < 0):
                self._kept = known.number


def complete_ledger(ledger: CommitteeLedger, table: EventTable | None = None) -> CommitteeLedger:
    """Return a contract as of the newest block with all of its events; see `EventLog.up_to`."""
    return EventLog(table).up_to(ledger)


def _holds(chain: ChainReader, number: int, block_hash: bytes, newest: int | None = None) -> bool:
    """Return whether a chain has a block; one beyond `newest` may be beyond its end."""
    if newest is not None and number > newest and number > chain.head().number:
        return False
    return chain.block(number).hash == block_hash


IDLE_BLOCKS = 1_000  # without an event, after which the table's newest block is moved on

# More than a file may hold of one contract: the rounds of a deployment are far below.
MAX_KEPT_LOGS = 10_000_000
MAX_KEPT_BYTES = 2**31

_BUSY_SECONDS = 5.0
_NEWEST = -1  # index of the row that names the newest verified block; it holds no log

_TABLE = (
    "CREATE TABLE events (contract TEXT, block INTEGER, log_index INTEGER, block_hash BLOB, "
    "transaction_hash BLOB, topics BLOB, data BLOB, PRIMARY KEY (contract, block, log_index))"
)
_FIND = (
    "SELECT block, block_hash FROM events WHERE contract = ? AND log_index = ? "
    "AND typeof(block) = 'integer'"
)


class EventTable:
    """The verified logs of contracts, in one SQLite table. Processes may share the file.

    The file is a cache: deleting it loses nothing. A file that is damaged, or not of this program,
    is neither used nor changed. A file that cannot be written is only read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_usable = True

    def load(self, ledger: CommitteeLedger) -> Sequence[Log]:
        """Return a contract's logs; the last is not a log, and names the newest verified block."""
        if not self._path.is_file():
            return ()
        rows: list[tuple[Any, ...]] = []
        try:
            with closing(self._opened("ro")) as base:
                if self._is_table(base):
                    rows = _rows_of(base, _name(ledger))
        except sqlite3.Error as error:
            self._fail(error)
        if not rows:
            return ()
        rows.sort(key=lambda row: row[1] == _NEWEST)
        logs = [_log_of(ledger.address, row) for row in rows]
        marks = [log.log_index == _NEWEST for log in logs]
        is_beyond = len(logs) > 1 and logs[-2].block_number > logs[-1].block_number
        if marks.count(True) != 1 or is_beyond:
            raise ports.ChainDamagedError("the newest verified block is missing")
        return logs

    def save(
        self,
        ledger: CommitteeLedger,
        logs: Sequence[Log],
        newest: tuple[int, bytes],
        *,
        is_new: bool,
    ) -> bool:
        """Keep all logs up to a block, in chain order; return whether the table has them now.

        New logs replace what the table has of the contract. Else only later logs are added, if the
        chain still holds the newest block in the table.
        """
        if not self._is_usable or not self._path.parent.is_dir():
            return False
        try:
            with closing(self._opened("rwc")) as base:
                base.execute("BEGIN IMMEDIATE")
                if not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    base.execute(_TABLE)
                if not self._is_table(base):
                    return False
                name, before = _name(ledger), -(2**63)
                found = None if is_new else base.execute(_FIND, [name, _NEWEST]).fetchone()
                if found is not None and _holds(ledger.chain, found[0], found[1], newest[0]):
                    before = found[0]
                if before < newest[0]:
                    new = logs[bisect_right(logs, before, key=_NUMBER) :]
                    _replace_after(before, base, name, new, newest)
                    base.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(error)
            return False
        return True

    def _opened(self, mode: str) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    def _fail(self, error: sqlite3.Error) -> None:
        # Locked, full, or in a folder that may only be read: no fault of the file.
        if isinstance(error, sqlite3.OperationalError):
            _logger.info("%s is not used: %s", self._path, error)
        else:
            self._give_up(str(error))

    def _is_table(self, base: sqlite3.Connection) -> bool:
        found = base.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL")
        if found.fetchmany(2) == [("table", _TABLE)]:
            return True
        self._give_up("it is not a table of events")
        return False

    def _give_up(self, fact: str) -> None:
        self._is_usable = False
        _logger.warning("%s is not used: %s; delete it to have it rebuilt", self._path, fact)


def _name(ledger: CommitteeLedger) -> str:
    chain = ledger.chain
    return f"{chain.chain_id}-{chain.genesis_hash.hex()}-{ledger.address}"


def _replace_after(
    before: int, base: sqlite3.Connection, name: str, logs: Sequence[Log], newest: tuple[int, bytes]
) -> None:
    base.execute(
        "DELETE FROM events WHERE contract = ? AND ((block <= ?) IS NOT 1 OR log_index = ?)",
        [name, before, _NEWEST],
    )
    rows: list[tuple[object, ...]] = []
    for log in logs:
        place = (name, log.block_number, log.log_index, log.block_hash)
        rows.append((*place, log.transaction_hash, b"".join(log.topics), log.data))
    rows.append((name, newest[0], _NEWEST, newest[1], b"", b"", b""))
    base.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _rows_of(base: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
    count, size = base.execute(
        "SELECT count(*), total(length(block_hash) + length(transaction_hash) + length(topics) + "
        "length(data)) FROM events WHERE contract = ?",
        [name],
    ).fetchone()
    if count > MAX_KEPT_LOGS or size > MAX_KEPT_BYTES:
        raise ports.ChainDamagedError(f"there are {count} rows of {size:.0f} bytes")
    return base.execute(
        "SELECT block, log_index, block_hash, transaction_hash, topics, data FROM events "
        "WHERE contract = ? ORDER BY block, log_index",
        [name],
    ).fetchall()


def _log_of(address: str, row: tuple[Any, ...]) -> Log:
    number, index, block_hash, transaction_hash, topics, data = row
    if tuple(map(type, row)) != (int, int, bytes, bytes, bytes, bytes) or number < 0:
        raise ports.ChainDamagedError("a row is not a log")
    words = tuple(topics[at : at + 32] for at in range(0, len(topics), 32))
    return Log(address, words, data, number, block_hash, transaction_hash, index)


class _PinnedChain(ports.ChainBase):
    """A chain as of one block, with the logs of one contract that were read up to there."""

    def __init__(
        self, chain: ChainReader, newest: Block, address: str, logs: tuple[Log, ...]
    ) -> None:
        self._chain, self._newest, self._address, self._logs = chain, newest, address, logs
        self.chain_id, self.genesis_hash = chain.chain_id, chain.genesis_hash
        self.node = chain.node  # it answers everything but logs
        self.block, self.code = chain.block, chain.code
        self.transaction, self.receipt = chain.transaction, chain.receipt

    def head(self) -> Block:
        return self._newest

    def finalized(self) -> int:
        return min(self._chain.finalized(), self._newest.number)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        number = self._newest.number if block_number is None else block_number
        return self._chain.call(to, data, number)

    def logs(self, query: ports.LogQuery) -> list[Log]:
        if query.address != self._address:
            fact = f"the logs of {query.address} were not read, {self._address}'s were"
            raise ports.NotServedError(fact)
        first = bisect_left(self._logs, query.first, key=_NUMBER)
        end = bisect_right(self._logs, query.last, key=_NUMBER)
        return query.of(self._logs[first:end])
