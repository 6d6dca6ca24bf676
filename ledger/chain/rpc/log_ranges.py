"""Logs from a node: filters, ranges halved until the node serves them, and verified answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ledger.chain.ports import Log, TopicFilter
from ledger.chain.rpc import wire
from ledger.chain.rpc.http_transport import AnswerTooLargeError

Fetch: TypeAlias = "Callable[[dict[str, Any]], list[Log]]"


def log_parts(
    fetch: Fetch, request: dict[str, Any], first: int, last: int, *, descending: bool
) -> Iterator[list[Log]]:
    """Yield the logs of a range of blocks in parts, in order.

    Args:
        fetch: returns the logs of one `eth_getLogs` request.
        descending: newest first.
    """
    waiting = [(first, last)]
    while waiting:
        low, high = waiting.pop()
        bounds = {"fromBlock": hex(low), "toBlock": hex(high)}
        try:
            logs = fetch({**request, **bounds})
        except (wire.RpcFault, AnswerTooLargeError) as error:
            # Nodes express their limits in many ways: any refusal of a range halves it, and a
            # refusal for another reason persists down to one block.
            if low == high or getattr(error, "code", None) == wire.UNKNOWN_METHOD:
                raise
            middle = (low + high) // 2
            halves = [(low, middle), (middle + 1, high)]
            waiting += halves if descending else reversed(halves)
            continue
        _verify_logs(logs, request, low, high)
        logs.sort(key=lambda log: (log.block_number, log.log_index), reverse=descending)
        yield logs


def read_logs(answer: object) -> list[Log]:
    """Return the logs in an answer to `eth_getLogs`."""
    return [wire.log(entry) for entry in wire.items(answer)]


def log_request(address: str | None, topics: Sequence[TopicFilter]) -> dict[str, Any] | None:
    """Return the filter of an `eth_getLogs` request; None if no log can match."""
    encoded: list[str | list[str] | None] = []
    for topic in topics:
        if isinstance(topic, bytes):
            encoded.append(wire.to_hex(topic))
        elif topic is None:
            encoded.append(None)
        elif topic:
            encoded.append([wire.to_hex(alternative) for alternative in topic])
        else:
            return None  # no alternative can match; a node would read it as any
    while encoded and encoded[-1] is None:
        encoded.pop()  # a node would require that number of topics
    if len(encoded) > 4:
        return None
    request: dict[str, Any] = {"topics": encoded}
    return request if address is None else {**request, "address": address}


def _verify_logs(logs: Sequence[Log], request: dict[str, Any], low: int, high: int) -> None:
    positions = {(log.block_number, log.log_index) for log in logs}
    if len(positions) < len(logs):
        raise wire.MalformedAnswerError("two logs at one place of the chain")
    for log in logs:
        if not low <= log.block_number <= high:
            raise wire.MalformedAnswerError(
                f"a log of block {log.block_number}, outside {low} to {high}"
            )
        if not _matches_filter(log, request):
            raise wire.MalformedAnswerError(
                f"a log of block {log.block_number} that the filter does not match"
            )


def _matches_filter(log: Log, request: dict[str, Any]) -> bool:
    contract = request.get("address")
    if contract is not None and contract.lower() != log.address.lower():
        return False
    topics = [wire.to_hex(topic) for topic in log.topics]
    filters = request["topics"]
    return len(topics) >= len(filters) and all(
        allowed is None or topic == allowed or topic in allowed
        for allowed, topic in zip(filters, topics, strict=False)
    )
