"""Plausibility of a node's answers: what a contract of given sizes can return and log at all.

A node may hide, repeat or alter what it serves. Readers such as the command line and the REST
interface reject an impossible answer here, as an error of the node. Whether a possible answer is
true is for the audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.ports import NotServedError
from ledger.protocol import ledger_state
from ledger.protocol.encoding import INFINITY_BITS, registered_client, word_client
from ledger.protocol.parameters import (
    MAX_BLOCKS,
    MAX_CLIENTS,
    MAX_MEMBERS,
    MAX_ROUNDS,
    MAX_TRAINERS,
    MIN_MEMBERS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.protocol.ledger_state import Deployment


def require_possible_sizes(fixed: Deployment) -> None:
    """Reject sizes that the constructor rejects.

    Raises:
        NotServedError: no such contract can have been deployed.
    """
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
    """Reject an event that a contract of these sizes cannot have logged.

    Raises:
        NotServedError: names the event and its block.
    """
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
    if event.threshold_bits >= INFINITY_BITS:
        return "with a threshold that is not finite"
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
