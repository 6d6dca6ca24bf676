"""The contract's logs as events of the executable specification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from eth_abi.abi import encode

from ledger.chain.contract import abi
from ledger.protocol import ledger_state
from ledger.protocol.encoding import word_client
from ledger.protocol.errors import ChainError
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.ports import Log


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
    event = _BUILD[name](abi.event_fields(name, log.topics, log.data))
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
    return {abi.topic(name): name for name in _BUILD}


def _logged(event: ledger_state.Event, name: str) -> object:
    """Return a field as the contract logs it: pairs of client and word, offsets into a ranking."""
    match event:
        case ledger_state.UpdatesCommitted(_, clients, commitments):
            return list(zip(clients, commitments, strict=True))
        case ledger_state.RoundDecided() if name in {"accepted", "next_committee"}:
            clients = getattr(event, name)
            ranked = [word_client(word) for word in event.ranking]
            return ranked.index(clients[0]), len(clients)
        case _:
            return getattr(event, name)


def _ledger_deployed(f: dict[str, Any]) -> ledger_state.LedgerDeployed:
    return ledger_state.LedgerDeployed(Digest(f["salt"]))


def _clients_registered(f: dict[str, Any]) -> ledger_state.ClientsRegistered:
    return ledger_state.ClientsRegistered(ClientId(f["first"]), f["words"])


def _ledger_opened(f: dict[str, Any]) -> ledger_state.LedgerOpened:
    return ledger_state.LedgerOpened(
        Digest(f["config"]), Digest(f["seed"]), _ids(f["committee"]), Digest(f["model"])
    )


def _updates_committed(f: dict[str, Any]) -> ledger_state.UpdatesCommitted:
    clients = tuple(ClientId(client) for client, _ in f["commitments"])
    commitments = tuple(Digest(commitment) for _, commitment in f["commitments"])
    return ledger_state.UpdatesCommitted(f["round"], clients, commitments)


def _round_decided(f: dict[str, Any]) -> ledger_state.RoundDecided:
    return ledger_state.RoundDecided(
        round=f["round"],
        ranking=f["ranking"],
        accepted=_ranked(f["ranking"], *f["accepted"]),
        next_committee=_ranked(f["ranking"], *f["next_committee"]),
        base=Digest(f["base"]),
        model=Digest(f["model"]),
        updates_root=Digest(f["updates_root"]),
        scores_root=Digest(f["scores_root"]),
        threshold_bits=f["threshold_bits"],
        reveal=Digest(f["reveal"]),
        record=Digest(f["record"]),
        incidents=Digest(f["incidents"]),
        views=(f["views"][0], f["views"][1]),
        primaries=(ClientId(f["primaries"][0]), ClientId(f["primaries"][1])),
        signers=(f["signers"][0], f["signers"][1]),
        next_seed=Digest(f["next_seed"]),
        head=Digest(f["head"]),
    )


def _round_abandoned(f: dict[str, Any]) -> ledger_state.RoundAbandoned:
    return ledger_state.RoundAbandoned(
        f["round"], _ids(f["next_committee"]), Digest(f["next_seed"]), Digest(f["head"])
    )


def _client_banned(f: dict[str, Any]) -> ledger_state.ClientBanned:
    return ledger_state.ClientBanned(f["round"], ClientId(f["client"]), Digest(f["head"]))


def _ranked(ranking: tuple[int, ...], first: int, size: int) -> tuple[ClientId, ...]:
    """Return a slice of a ranking as clients: the contract logs only offset and length."""
    return tuple(word_client(word) for word in ranking[first : first + size])


def _ids(values: tuple[int, ...]) -> tuple[ClientId, ...]:
    return tuple(ClientId(value) for value in values)


_BUILD: dict[str, Callable[[dict[str, Any]], ledger_state.Event]] = {
    "LedgerDeployed": _ledger_deployed,
    "ClientsRegistered": _clients_registered,
    "LedgerOpened": _ledger_opened,
    "UpdatesCommitted": _updates_committed,
    "RoundDecided": _round_decided,
    "RoundAbandoned": _round_abandoned,
    "ClientBanned": _client_banned,
}
