"""The JSON-RPC method for logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_tags import number_of, requested_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.ports import Log
    from ledger.chain.rpc.server.block_methods import Methods

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


class LogMethods:
    """The method for logs; one answer has at most `max_logs`, as on public nodes."""

    def __init__(self, chain: EmbeddedReader, max_logs: int) -> None:
        self._chain = chain
        self._most_logs = max_logs
        self.table: Methods = {"eth_getLogs": lambda request: self._logs(self._query(request))}

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

    def _logs(self, query: LogQuery) -> list[dict[str, Any]]:
        head = self._chain.head().number
        low = head if query.first is None else query.first
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


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        # An empty alternative matches anything.
        if None in position:
            return None
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)
