"""Methods that find logs at once, and filters that tell what is new since they were last asked.

Filters are the service's only memory of its clients: they are few, and one that nobody asks for
five minutes is forgotten.
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
    """Which logs are asked for.

    Attributes:
        addresses: of contracts; None for every one.
        topics: per position a topic, several of which one must match, or None for any.
        first: first block; None for the newest.
        last: last block; None for the newest.
    """

    addresses: tuple[str, ...] | None
    topics: Topics
    first: int | None
    last: int | None


@dataclass(slots=True)
class _Filter:
    """What somebody waits for: logs, blocks (without a query), or transactions before their block.

    Of these nothing is told.
    """

    query: LogQuery | None
    pending: bool
    seen: int
    asked: float


class LogMethods:
    """Answers about logs, and keeps filters. Safe to share between threads.

    Args:
        chain: the chain.
        most_logs: how many logs one answer may hold, as public nodes limit it.
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
        asked = wire.members(request)
        found = asked.get("address")
        addresses = found if isinstance(found, list) else [found]
        # Each once, or the same logs would be found again and again.
        named = dict.fromkeys(wire.address(one) for one in addresses) if found is not None else None
        contracts = None if named is None else tuple(named)
        topics = [_read_topics(position) for position in wire.items(asked.get("topics") or [])]
        if "blockHash" in asked:
            if asked.get("fromBlock") is not None or asked.get("toBlock") is not None:
                raise wire.RpcFault(
                    wire.INVALID_PARAMETERS, "cannot specify both blockHash and fromBlock/toBlock"
                )
            number = number_of(self._chain, {"blockHash": asked["blockHash"]})
            return LogQuery(contracts, topics, number, number)
        first, last = (requested_number(asked.get(name)) for name in ("fromBlock", "toBlock"))
        return LogQuery(contracts, topics, first, last)

    def _logs(self, query: LogQuery, first: int | None = None) -> list[dict[str, Any]]:
        head = self._chain.head().number
        low = first if first is not None else head if query.first is None else query.first
        high = head if query.last is None else query.last
        found: list[Log] = []
        for contract in (None,) if query.addresses is None else query.addresses:
            left = self._most_logs + 1 - len(found)
            found += self._chain.logs(contract, query.topics, low, high, left)
            if len(found) > self._most_logs:
                raise wire.RpcFault(
                    wire.LIMIT_EXCEEDED, f"query returned more than {self._most_logs} results"
                )
        found.sort(key=lambda entry: (entry.block_number, entry.log_index))
        places = {
            one: self._chain.transaction_index(one)
            for one in {entry.transaction_hash for entry in found}
        }
        return [wire.log_json(entry, places[entry.transaction_hash]) for entry in found]

    def _new(self, query: LogQuery | None, *, pending: bool = False) -> str:
        head = self._chain.head().number
        with self._lock:
            self._forget_the_old()
            if len(self._filters) >= MOST_FILTERS:
                raise wire.RpcFault(wire.LIMIT_EXCEEDED, f"over {MOST_FILTERS} filters are open")
            name = next(self._names)
            self._filters[name] = _Filter(query, pending, head, self._clock())
        return name

    def _changes(self, name: object) -> list[Any]:
        with self._lock:
            found = self._open(name)
            head = self._chain.head().number
            first, found.seen = found.seen + 1, head
        if found.pending or first > head:
            return []
        if found.query is None:
            numbers = range(max(first, head - _MOST_NEW_BLOCKS + 1), head + 1)
            return [wire.to_hex(self._chain.block(number).hash) for number in numbers]
        last = head if found.query.last is None else min(found.query.last, head)
        query = LogQuery(found.query.addresses, found.query.topics, None, last)
        return self._logs(query, max(first, found.query.first or 0))

    def _filter_logs(self, name: object) -> list[dict[str, Any]]:
        with self._lock:
            query = self._open(name).query
        if query is None:
            raise wire.RpcFault(wire.SERVER_ERROR, "filter not found")
        return self._logs(query)

    def _uninstall(self, name: object) -> bool:
        with self._lock:
            self._forget_the_old()
            return isinstance(name, str) and self._filters.pop(name, None) is not None

    def _open(self, name: object) -> _Filter:
        self._forget_the_old()
        found = self._filters.get(name) if isinstance(name, str) else None
        if found is None:
            raise wire.RpcFault(wire.SERVER_ERROR, "filter not found")
        found.asked = self._clock()
        return found

    def _forget_the_old(self) -> None:
        oldest = self._clock() - FILTER_SECONDS
        for name in [name for name, one in self._filters.items() if one.asked < oldest]:
            del self._filters[name]


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        # A blank among alternatives lets anything match.
        if None in position:
            return None
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)
