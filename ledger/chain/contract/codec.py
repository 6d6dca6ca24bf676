"""The contract's five transactions as typed calls, and its logs as events of the specification.

Signatures have 65 bytes r ‖ s ‖ v, except in call data, where they are compact (EIP-2098). A node
may hide, repeat or alter what it serves. This module rejects data that a contract of given sizes
can neither return nor log, as an error of the node. The audit decides whether possible data are
true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast, get_args

from ledger.chain.contract import abi
from ledger.chain.ports import Log, NotServedError
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol import ledger_state, parameters, types
from ledger.protocol.encoding import INFINITY_BITS, registered_client, word_client
from ledger.protocol.errors import ChainError, SignatureError
from ledger.protocol.ledger_state import Deployment, SignedStatement, StatementKind
from ledger.protocol.types import ClientId, Digest, Scores, SignedCommitment, Vote, VoteKind


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """A `register_clients` transaction: registry words, and the digest of the later batches."""

    words: tuple[int, ...]
    rest: Digest


@dataclass(frozen=True, slots=True)
class CommitCall:
    """A `commit_updates` transaction."""

    round: int
    signed: tuple[SignedCommitment, ...]


@dataclass(frozen=True, slots=True)
class DecideCall:
    """A `decide` transaction; the votes are in its call data only."""

    round: int
    decision: ledger_state.SubmittedDecision
    certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]


@dataclass(frozen=True, slots=True)
class AbandonCall:
    """An `abandon_round` transaction."""

    round: int


@dataclass(frozen=True, slots=True)
class ReportCall:
    """A `report_equivocation` transaction."""

    report: ledger_state.EquivocationReport


Call: TypeAlias = RegisterCall | CommitCall | DecideCall | AbandonCall | ReportCall


def encode_call(call: Call) -> bytes:
    """Return the call data of a transaction."""
    match call:
        case RegisterCall(words, rest):
            return abi.call_data("register_clients", words, rest)
        case CommitCall(number, signed):
            commitments = [(each.commitment.client, each.commitment.commitment) for each in signed]
            signatures = [compact(each.signature) for each in signed]
            return abi.call_data("commit_updates", number, commitments, signatures)
        case DecideCall(number, d, certificates):
            outcome = [getattr(d, name) for name in abi.struct_fields("decide", "outcome")]
            decision = (d.committee, d.ranking, d.base, outcome, d.incidents)
            votes: list[object] = []
            for c in certificates:
                votes.append((c.view, c.set_digest, *compact(c.request), c.signers))
                votes.append([compact(reply) for reply in c.replies])
            return abi.call_data("decide", number, *decision, *votes)
        case AbandonCall(number):
            return abi.call_data("abandon_round", number)
        case ReportCall(report):
            position, first = _signed_values(report.first)
            _, second = _signed_values(report.second)
            accused = report.client, int(report.kind)
            return abi.call_data("report_equivocation", *accused, *position, first, second)


def decode_call(data: bytes) -> Call:
    """Return the call in a transaction's data."""
    name = next((name for name in _CALLS if abi.selector(name) == data[:4]), None)
    if name is None:
        raise ChainError(f"0x{data[:4].hex()} is not a transaction of the contract")
    return _CALLS[name](*abi.arguments_of(name, data))


def compact(signature: bytes) -> tuple[bytes, bytes]:
    """Return r and vs (EIP-2098) of a 65-byte signature."""
    if len(signature) != 65 or signature[64] not in {27, 28} or signature[32] >> 7:
        raise SignatureError("the signature has no compact form: s is too large, or v not 27 or 28")
    vs = int.from_bytes(signature[32:64]) | (signature[64] - 27) << 255
    return signature[:32], vs.to_bytes(32)


def expanded(r: bytes, vs: bytes) -> bytes:
    """Return the 65 bytes r ‖ s ‖ v of a compact signature."""
    word = int.from_bytes(vs)
    return r + (word & (1 << 255) - 1).to_bytes(32) + bytes([27 + (word >> 255)])


def _signed_values(signed: SignedStatement) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the place of a statement, and what was signed there with the signature."""
    signature = compact(signed.signature)
    match signed.statement:
        case Vote() as vote:
            place = (vote.round, int(vote.phase), vote.view, vote.base)
            return place, (vote.set_digest, vote.result, *signature)
        case Scores() as scores:
            return (scores.round, 0, 0, scores.base), (scores.clients, scores.digest, *signature)


def _commit(
    number: int, words: tuple[tuple[int, bytes], ...], signatures: tuple[Any, ...]
) -> CommitCall:
    if len(words) != len(signatures):
        count = f"{len(words)} commitments have {len(signatures)} signatures"
        raise ChainError(f"the contract refuses it: {count}")
    signed = [
        SignedCommitment(types.Commitment(number, ClientId(client), Digest(word)), expanded(*each))
        for (client, word), each in zip(words, signatures, strict=True)
    ]
    return CommitCall(number, tuple(signed))


def _decide(number: int, *values: Any) -> DecideCall:
    committee, ranking, base, outcome, incidents, *votes = values
    decision = ledger_state.SubmittedDecision(
        committee=committee,
        ranking=ranking,
        base=base,
        incidents=incidents,
        **dict(zip(abi.struct_fields("decide", "outcome"), outcome, strict=True)),
    )
    certificates = (_certificate(votes[0], votes[1]), _certificate(votes[2], votes[3]))
    return DecideCall(number, decision, certificates)


def _certificate(
    values: tuple[Any, ...], replies: tuple[Any, ...]
) -> ledger_state.SubmittedCertificate:
    view, set_digest, r, vs, signers = values
    return ledger_state.SubmittedCertificate(
        view=view,
        set_digest=Digest(set_digest),
        request=expanded(r, vs),
        signers=signers,
        replies=tuple(expanded(*reply) for reply in replies),
    )


def _report(client: int, kind: int, *values: Any) -> ReportCall:
    *position, first, second = values
    if kind not in set(StatementKind):
        raise ChainError(f"the contract refuses it: {kind} is not a kind of statement")
    statement = StatementKind(kind)
    signed = [_signed(ClientId(client), statement, position, part) for part in (first, second)]
    return ReportCall(ledger_state.EquivocationReport(ClientId(client), signed[0], signed[1]))


def _signed(
    client: ClientId, kind: StatementKind, position: list[Any], values: tuple[Any, ...]
) -> SignedStatement:
    number, phase, view, base = position
    first, second, r, vs = values
    digests = (Digest(base), Digest(first), Digest(second))
    if kind is StatementKind.SCORES:
        return SignedStatement(Scores(number, client, *digests), expanded(r, vs))
    vote_kind = VoteKind.REQUEST if kind is StatementKind.REQUEST else VoteKind.REPLY
    # The contract accepts any phase number: two votes for an unknown phase are still two votes.
    vote = Vote(vote_kind, number, cast("types.Phase", phase), view, *digests)
    return SignedStatement(vote, expanded(r, vs))


_CALLS: dict[str, Callable[..., Call]] = {
    "register_clients": RegisterCall,
    "commit_updates": _commit,
    "decide": _decide,
    "abandon_round": AbandonCall,
    "report_equivocation": _report,
}


_EVENTS: dict[str, type[ledger_state.Event]] = {
    kind.__name__: kind for kind in get_args(ledger_state.Event)
}
_PLACES = ("accepted", "next_committee")
"""Fields of a decision that the contract logs as places of the ranking: bit i is place i."""


def decode_log(log: Log) -> RecordedEvent:
    """Return the event in one of the contract's logs; raise ChainError for any other log."""
    name = _event_names().get(log.topics[0]) if log.topics else None
    if name is None:
        raise ChainError(f"block {log.block_number} has a log of an unknown event")
    fields = abi.event_fields(name, log.topics, log.data)
    if name == "UpdatesCommitted":
        pairs = fields.pop("commitments")
        fields["clients"] = tuple(client for client, _ in pairs)
        fields["commitments"] = tuple(commitment for _, commitment in pairs)
    if name == "RoundDecided":
        clients = tuple(word_client(word) for word in fields["ranking"])
        for field in _PLACES:
            places = fields[field]
            fields[field] = tuple(c for place, c in enumerate(clients) if places >> place & 1)
    place = log.block_number, log.block_hash, log.transaction_hash, log.log_index
    return RecordedEvent(_EVENTS[name](**fields), *place)


def encode_log(event: ledger_state.Event) -> tuple[tuple[bytes, ...], bytes]:
    """Return topics and data of an event's log."""
    name = type(event).__name__
    indexed, plain = abi.event_layout(name)
    topics = (abi.topic(name), *(getattr(event, field).to_bytes(32) for field in indexed))
    return topics, abi.encoded(tuple(plain.values()), [_logged(event, field) for field in plain])


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
            ranked = list(map(word_client, event.ranking))
            return sum(1 << place for place, client in enumerate(ranked) if client in chosen)
        case _:
            return getattr(event, name)


def require_possible_sizes(d: Deployment) -> None:
    """Reject sizes that the constructor rejects."""
    possible = (
        parameters.MIN_MEMBERS <= d.members <= parameters.MAX_MEMBERS
        and d.members <= d.trainers <= parameters.MAX_TRAINERS
        and d.members + d.trainers <= d.clients <= parameters.MAX_CLIENTS
        and d.aggregation_ppm <= 1_000_000
        and 0 < d.rounds <= parameters.MAX_ROUNDS
        and 0 < d.commit_blocks <= d.deadline_blocks - 2 < parameters.MAX_BLOCKS - 1
        and d.members // 2 <= d.replies < d.members
    )
    if not possible:
        raise NotServedError(
            f"deployment() returned {d.clients} clients, {d.trainers} trainers, {d.members} "
            f"members and {d.rounds} rounds, which the constructor refuses"
        )


def require_possible_event(recorded: RecordedEvent, fixed: Deployment) -> None:
    """Reject an event that a contract of these sizes cannot have logged."""
    impossible = _impossible(recorded.event, fixed)
    if impossible is not None:
        name = type(recorded.event).__name__
        raise NotServedError(
            f"block {recorded.block_number} contains a {name} {impossible}, which a contract "
            "of these sizes cannot log"
        )


def _impossible(event: ledger_state.Event, fixed: Deployment) -> str | None:
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
    wrong = _wrong_clients([word_client(word) for word in event.ranking], fixed, fixed.trainers)
    return wrong or _wrong_clients(set(event.primaries), fixed, fixed.members)


def _wrong_round(number: int, fixed: Deployment) -> str | None:
    return None if 1 <= number <= fixed.rounds else f"of round {number}, of {fixed.rounds}"


def _wrong_clients(clients: Collection[int], fixed: Deployment, most: int) -> str | None:
    if len(clients) > most or len(set(clients)) < len(clients):
        return f"of {len(clients)} clients where {most} different ones are possible"
    beyond = [client for client in clients if client >= fixed.clients]
    return f"of client {beyond[0]}, of {fixed.clients}" if beyond else None
