"""The contract's logs as events of the executable specification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from eth_abi.abi import encode

from ledger.chain.contract import abi
from ledger.protocol import ledger_state
from ledger.protocol.encoding import word_client
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.ports import Log


_EVENTS: dict[str, type[ledger_state.Event]] = {
    kind.__name__: kind for kind in get_args(ledger_state.Event)
}
_SLICES = ("accepted", "next_committee")
"""Fields of a decision that the contract logs as offset and length in the ranking."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event, and its position on the chain."""

    event: ledger_state.Event
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


def decode_log(log: Log) -> RecordedEvent:
    """Return the event in one of the contract's logs; raise ChainError for any other log.

    Raises:
        ChainError: the log is not an event of the contract.
    """
    name = _names().get(log.topics[0]) if log.topics else None
    if name is None:
        raise ChainError(f"block {log.block_number} holds a log of no known event")
    event = _read(_EVENTS[name], abi.event_fields(name, log.topics, log.data))
    return RecordedEvent(
        event, log.block_number, log.block_hash, log.transaction_hash, log.log_index
    )


def encode_log(event: ledger_state.Event) -> tuple[tuple[bytes, ...], bytes]:
    """Return topics and data of an event's log."""
    name = type(event).__name__
    indexed, plain, types = abi.event_layout(name)
    topics = (abi.topic(name), *(getattr(event, field).to_bytes(32) for field in indexed))
    return topics, encode(types, [_logged(event, field) for field in plain])


@cache
def _names() -> dict[bytes, str]:
    """Return the names of the events by first topic."""
    return {abi.topic(name): name for name in _EVENTS}


def _logged(event: ledger_state.Event, name: str) -> object:
    """Return a field as the contract logs it: pairs of client and word, offsets into a ranking."""
    match event:
        case ledger_state.UpdatesCommitted(_, clients, commitments):
            return list(zip(clients, commitments, strict=True))
        case ledger_state.RoundDecided() if name in _SLICES:
            clients = getattr(event, name)
            ranked = [word_client(word) for word in event.ranking]
            return ranked.index(clients[0]), len(clients)
        case _:
            return getattr(event, name)


def _read(kind: type[ledger_state.Event], fields: dict[str, Any]) -> ledger_state.Event:
    """Return an event from the fields of its log, which have the names of the specification's."""
    if kind is ledger_state.UpdatesCommitted:
        pairs = fields.pop("commitments")
        fields["clients"] = tuple(client for client, _ in pairs)
        fields["commitments"] = tuple(commitment for _, commitment in pairs)
    if kind is ledger_state.RoundDecided:
        clients = tuple(word_client(word) for word in fields["ranking"])
        for name in _SLICES:
            first, size = fields[name]
            fields[name] = clients[first : first + size]
    return kind(**fields)
