"""The contract's transactions as calls of the executable specification, and its events as logs.

Both directions are strict: what a transaction does is taken from its call data, and what the
contract must have logged is encoded again, so that a log can be compared byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple

from ledger.chain import abi
from ledger.chain.committee_ledger import DecideCall, decide_call_of, expanded
from ledger.protocol import ledger_state, rounds
from ledger.protocol.encoding import word_client
from ledger.protocol.errors import ChainError
from ledger.protocol.types import ClientId, Digest, Phase, Vote, VoteKind

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import BlockContext, Event, LedgerState, Step


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """The call data of `register_clients`."""

    words: tuple[int, ...]
    rest: Digest


@dataclass(frozen=True, slots=True)
class CommitCall:
    """The call data of `commit_updates`: client, payload digest and signature of each."""

    round: int
    signed: tuple[tuple[ClientId, Digest, bytes], ...]


@dataclass(frozen=True, slots=True)
class AbandonCall:
    """The call data of `abandon_round`."""

    round: int


@dataclass(frozen=True, slots=True)
class ReportCall:
    """The call data of `report_equivocation`: the accused and its two signed votes."""

    client: ClientId
    first: tuple[Vote, bytes]
    second: tuple[Vote, bytes]


Call = RegisterCall | CommitCall | DecideCall | AbandonCall | ReportCall


def decode_call(data: bytes) -> Call:
    """Return the call behind a transaction's data.

    Args:
        data: selector and encoded arguments.

    Returns:
        One of the five calls that change the contract.

    Raises:
        ChainError: it calls something else, or its arguments do not decode.
    """
    selector = data[:4]
    if selector == abi.selector("decide"):
        return decide_call_of(data)
    if selector == abi.selector("commit_updates"):
        return _commit(*abi.arguments_of("commit_updates", data))
    if selector == abi.selector("register_clients"):
        words, rest = abi.arguments_of("register_clients", data)
        return RegisterCall(words, Digest(rest))
    if selector == abi.selector("abandon_round"):
        return AbandonCall(abi.arguments_of("abandon_round", data)[0])
    if selector == abi.selector("report_equivocation"):
        return _report(*abi.arguments_of("report_equivocation", data))
    raise ChainError(f"0x{selector.hex()} names no transaction of the contract")


def apply(state: LedgerState, call: Call, block: BlockContext) -> Step:
    """Return the state after a call, and the events that it makes.

    Args:
        state: before it.
        call: the call.
        block: the block that it is in.

    Returns:
        The next state and its events.

    Raises:
        Refusal: the contract would have reverted.
    """
    match call:
        case RegisterCall(words, rest):
            return rounds.register_clients(state, words, rest, block)
        case CommitCall(number, signed):
            return rounds.commit_updates(state, number, signed)
        case DecideCall(number, decision, certificates):
            return rounds.decide(state, number, decision, certificates, block)
        case AbandonCall(number):
            return rounds.abandon_round(state, number, block)
        case ReportCall(client, first, second):
            return rounds.report_equivocation(state, client, first, second)


def encoded_event(event: Event) -> tuple[tuple[bytes, ...], bytes]:
    """Return topics and data of the log that the contract makes of an event."""
    name = type(event).__name__
    indexed, plain, types = _layout(name)
    topics = (abi.topic(name), *(getattr(event, field).to_bytes(32) for field in indexed))
    return topics, encode(types, [_logged(event, field) for field in plain])


def _logged(event: Event, name: str) -> object:
    """Return a field as the contract logs it: pairs of client and payload, places of a ranking."""
    match event:
        case ledger_state.UpdatesCommitted(_, clients, payloads):
            return list(zip(clients, payloads, strict=True))
        case ledger_state.RoundDecided() if name in {"accepted", "next_committee"}:
            clients = getattr(event, name)
            ranked = [word_client(word) for word in event.ranking]
            return ranked.index(clients[0]), len(clients)
        case _:
            return getattr(event, name)


@lru_cache(maxsize=16)
def _layout(name: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    inputs = abi.artifact().abi[name]["inputs"]
    indexed = tuple(entry["name"] for entry in inputs if entry["indexed"])
    plain = [entry for entry in inputs if not entry["indexed"]]
    return indexed, tuple(e["name"] for e in plain), tuple(map(collapse_if_tuple, plain))


def _commit(
    number: int, commitments: tuple[tuple[int, bytes], ...], signatures: tuple[Any, ...]
) -> CommitCall:
    if len(commitments) != len(signatures):
        count = f"{len(commitments)} commitments have {len(signatures)} signatures"
        raise ChainError(f"the contract refuses it: {count}")
    signed = zip(commitments, signatures, strict=True)
    return CommitCall(
        number, tuple((ClientId(c), Digest(payload), expanded(*s)) for (c, payload), s in signed)
    )


def _report(client: int, is_request: bool, *values: Any) -> ReportCall:
    number, phase, view, first, second = values
    kind = VoteKind.REQUEST if is_request else VoteKind.REPLY
    # The contract takes any phase: two votes for one that does not exist are two votes as well.
    slot = (kind, number, cast("Phase", phase), view)
    votes = [
        (Vote(*slot, timestamp, Digest(set_digest), Digest(result)), expanded(r, vs))
        for timestamp, set_digest, result, r, vs in (first, second)
    ]
    return ReportCall(ClientId(client), votes[0], votes[1])
