"""The contract's logs as events of the executable specification, and which of them are possible.

A node may hide, repeat or alter what it serves. Readers such as the command line and the REST
interface reject here what a contract of given sizes can neither return nor log, as an error of the
node. Whether a possible answer is true is for the audit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from ledger.chain.contract import abi
from ledger.chain.ports import Log, NotServedError
from ledger.protocol import ledger_state
from ledger.protocol.encoding import INFINITY_BITS, registered_client, word_client
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import (
    MAX_BLOCKS,
    MAX_CLIENTS,
    MAX_MEMBERS,
    MAX_ROUNDS,
    MAX_TRAINERS,
    MIN_MEMBERS,
)

_EVENTS: dict[str, type[ledger_state.Event]] = {
    kind.__name__: kind for kind in get_args(ledger_state.Event)
}
_PLACES = ("accepted", "next_committee")
"""Fields of a decision that the contract logs as places of the ranking: bit i is place i."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event, and its position on the chain."""

    event: ledger_state.Event
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


def decode_log(log: Log) -> RecordedEvent:
    """Return the event in one of the contract's logs; raise ChainError for any other log."""
    name = _event_names().get(log.topics[0]) if log.topics else None
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
    return topics, abi.encoded(types, [_logged(event, field) for field in plain])


@cache
def _event_names() -> dict[bytes, str]:
    return {abi.topic(name): name for name in _EVENTS}


def _logged(event: ledger_state.Event, name: str) -> object:
    """Return a field as the contract logs it: pairs of client and word, places of a ranking."""
    match event:
        case ledger_state.UpdatesCommitted(_, clients, commitments):
            return list(zip(clients, commitments, strict=True))
        case ledger_state.RoundDecided() if name in _PLACES:
            chosen = set(getattr(event, name))
            ranked = map(word_client, event.ranking)
            return sum(1 << place for place, client in enumerate(ranked) if client in chosen)
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
        for name in _PLACES:
            places = fields[name]
            fields[name] = tuple(c for place, c in enumerate(clients) if places >> place & 1)
    return kind(**fields)


def require_possible_sizes(fixed: Deployment) -> None:
    """Reject sizes that the constructor rejects."""
    d = fixed
    possible = (
        MIN_MEMBERS <= d.members <= MAX_MEMBERS
        and d.members <= d.trainers <= MAX_TRAINERS
        and d.members + d.trainers <= d.clients <= MAX_CLIENTS
        and d.aggregation_ppm <= 1_000_000
        and 0 < d.rounds <= MAX_ROUNDS
        and 0 < d.commit_blocks <= d.deadline_blocks - 2 < MAX_BLOCKS - 1
        and d.members // 2 <= d.replies < d.members
    )
    if not possible:
        raise NotServedError(
            f"deployment() returned {d.clients} clients, {d.trainers} trainers, "
            f"{d.members} members and {d.rounds} rounds: the constructor refuses these sizes"
        )


def require_possible_event(recorded: RecordedEvent, fixed: Deployment) -> None:
    """Reject an event that a contract of these sizes cannot have logged."""
    impossible = _impossible(recorded.event, fixed)
    if impossible is not None:
        name = type(recorded.event).__name__
        raise NotServedError(
            f"block {recorded.block_number} contains a {name} {impossible}: "
            "a contract of these sizes cannot log it"
        )


def _impossible(event: ledger_state.Event, fixed: Deployment) -> str | None:
    """Return what is impossible about an event; None if nothing is."""
    match event:
        case ledger_state.LedgerDeployed():
            return None
        case ledger_state.ClientsRegistered(first, words):
            return _wrong_registration(first, words, fixed)
        case ledger_state.LedgerOpened(_, _, committee, _):
            return _wrong_clients(committee, fixed, fixed.members)
        case ledger_state.UpdatesCommitted(number, clients, _):
            return _wrong_round(number, fixed) or _wrong_clients(clients, fixed, fixed.clients)
        case ledger_state.RoundDecided():
            return _wrong_round(event.round, fixed) or _wrong_decision(event, fixed)
        case ledger_state.RoundAbandoned(number, committee, _, _):
            return _wrong_round(number, fixed) or _wrong_clients(committee, fixed, fixed.members)
        case ledger_state.ClientBanned(number, client, _):
            return _wrong_round(number, fixed) or _wrong_clients([client], fixed, 1)


def _wrong_registration(first: int, words: Sequence[int], fixed: Deployment) -> str | None:
    if first + len(words) > fixed.clients:
        return f"of clients up to {first + len(words) - 1}, of {fixed.clients}"
    registered = [registered_client(word) for word in words]
    if any(client.samples == 0 or client.banned_in for client in registered):
        return "of a client without samples, or banned"
    return None


def _wrong_decision(event: ledger_state.RoundDecided, fixed: Deployment) -> str | None:
    if any(word >> 32 >= INFINITY_BITS for word in event.ranking):
        return "with a distance that is not finite"
    if len(event.next_committee) != fixed.members:
        return f"with a next committee of {len(event.next_committee)}, not {fixed.members}"
    ranked = [word_client(word) for word in event.ranking]
    return _wrong_clients(ranked, fixed, fixed.trainers) or _wrong_clients(
        set(event.primaries), fixed, fixed.members
    )


def _wrong_round(number: int, fixed: Deployment) -> str | None:
    return None if 1 <= number <= fixed.rounds else f"of round {number}, of {fixed.rounds}"


def _wrong_clients(clients: Collection[int], fixed: Deployment, most: int) -> str | None:
    if len(clients) > most or len(set(clients)) < len(clients):
        return f"of {len(clients)} clients where {most} different ones are possible"
    beyond = [client for client in clients if client >= fixed.clients]
    return f"of client {beyond[0]}, of {fixed.clients}" if beyond else None
