"""JSON-RPC methods for logs, and filters that return new ones.

Filters are the server's only per-client state: their number is bounded, and one that is unused for
five minutes is removed.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_tags import number_of, requested_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.ports import Log
    from ledger.chain.rpc.server.block_methods import Methods

MOST_FILTERS = 100
FILTER_SECONDS = 300.0
_MOST_NEW_BLOCKS = 10_000

Topics: TypeAlias = "Sequence[bytes | Sequence[bytes] | None]"


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A log filter.

    Attributes:
        addresses: of contracts; None for every one.
        topics: per position a topic, alternatives, or None for any.
        first: first block; None for the newest.
        last: last block; None for the newest.
    """

    addresses: tuple[str, ...] | None
    topics: Topics
    first: int | None
    last: int | None


@dataclass(slots=True)
class _Filter:
    """An installed filter: for logs, for blocks (no query), or for pending transactions.

    The last kind returns nothing.
    """

    query: LogQuery | None
    pending: bool
    newest_sent: int
    last_used: float


class LogMethods:
    """Methods about logs, with installed filters. Safe to share between threads.

    Args:
        chain: the chain.
        max_logs: limit of one answer, as on public nodes.
        clock: monotonic seconds, for the filters' age.

    Attributes:
        table: the methods by name.
    """

    def __init__(
        self,
        chain: EmbeddedReader,
        max_logs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._most_logs = max_logs
        self._clock = clock
        self._lock = threading.Lock()
        self._filters: dict[str, _Filter] = {}
        self._names = map(hex, itertools.count(1))
        self.table: Methods = {
            "eth_getLogs": lambda request: self._logs(self._query(request)),
            "eth_newFilter": lambda request: self._new(self._query(request)),
            "eth_newBlockFilter": lambda: self._new(None),
            "eth_newPendingTransactionFilter": lambda: self._new(None, pending=True),
            "eth_getFilterChanges": self._changes,
            "eth_getFilterLogs": self._filter_logs,
            "eth_uninstallFilter": self._uninstall,
        }

    def _query(self, request: object) -> LogQuery:
        fields = wire.members(request)
        contract = fields.get("address")
        addresses = contract if isinstance(contract, list) else [contract]
        # Without duplicates, which would repeat logs.
        named = (
            dict.fromkeys(wire.address(entry) for entry in addresses)
            if contract is not None
            else None
        )
        contracts = None if named is None else tuple(named)
        topics = [_read_topics(position) for position in wire.items(fields.get("topics") or [])]
        if "blockHash" in fields:
            if fields.get("fromBlock") is not None or fields.get("toBlock") is not None:
                raise wire.RpcFault(
                    wire.INVALID_PARAMETERS, "cannot specify both blockHash and fromBlock/toBlock"
                )
            number = number_of(self._chain, {"blockHash": fields["blockHash"]})
            return LogQuery(contracts, topics, number, number)
        first, last = (requested_number(fields.get(name)) for name in ("fromBlock", "toBlock"))
        return LogQuery(contracts, topics, first, last)

    def _logs(self, query: LogQuery, first: int | None = None) -> list[dict[str, Any]]:
        head = self._chain.head().number
        low = first if first is not None else head if query.first is None else query.first
        high = head if query.last is None else query.last
        logs: list[Log] = []
        for contract in (None,) if query.addresses is None else query.addresses:
            room = self._most_logs + 1 - len(logs)
            logs += self._chain.logs(contract, query.topics, low, high, room)
            if len(logs) > self._most_logs:
                raise wire.RpcFault(
                    wire.LIMIT_EXCEEDED, f"query returned more than {self._most_logs} results"
                )
        logs.sort(key=lambda entry: (entry.block_number, entry.log_index))
        positions = {
            hash_: self._chain.transaction_index(hash_)
            for hash_ in {entry.transaction_hash for entry in logs}
        }
        return [wire.log_json(entry, positions[entry.transaction_hash]) for entry in logs]

    def _new(self, query: LogQuery | None, *, pending: bool = False) -> str:
        head = self._chain.head().number
        with self._lock:
            self._drop_expired()
            if len(self._filters) >= MOST_FILTERS:
                raise wire.RpcFault(wire.LIMIT_EXCEEDED, f"over {MOST_FILTERS} filters are open")
            name = next(self._names)
            self._filters[name] = _Filter(query, pending, head, self._clock())
        return name

    def _changes(self, name: object) -> list[Any]:
        with self._lock:
            filter_ = self._open(name)
            head = self._chain.head().number
            first, filter_.newest_sent = filter_.newest_sent + 1, head
        if filter_.pending or first > head:
            return []
        if filter_.query is None:
            numbers = range(max(first, head - _MOST_NEW_BLOCKS + 1), head + 1)
            return [wire.to_hex(self._chain.block(number).hash) for number in numbers]
        last = head if filter_.query.last is None else min(filter_.query.last, head)
        query = LogQuery(filter_.query.addresses, filter_.query.topics, None, last)
        return self._logs(query, max(first, filter_.query.first or 0))

    def _filter_logs(self, name: object) -> list[dict[str, Any]]:
        with self._lock:
            query = self._open(name).query
        if query is None:
            raise wire.RpcFault(wire.SERVER_ERROR, "filter not found")
        return self._logs(query)

    def _uninstall(self, name: object) -> bool:
        with self._lock:
            self._drop_expired()
            return isinstance(name, str) and self._filters.pop(name, None) is not None

    def _open(self, name: object) -> _Filter:
        self._drop_expired()
        filter_ = self._filters.get(name) if isinstance(name, str) else None
        if filter_ is None:
            raise wire.RpcFault(wire.SERVER_ERROR, "filter not found")
        filter_.last_used = self._clock()
        return filter_

    def _drop_expired(self) -> None:
        oldest = self._clock() - FILTER_SECONDS
        for name in [name for name, filter_ in self._filters.items() if filter_.last_used < oldest]:
            del self._filters[name]


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        # An empty alternative matches anything.
        if None in position:
            return None
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)
