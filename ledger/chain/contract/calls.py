"""The contract's five transactions as typed calls, and their call data.

Signatures have 65 bytes r ‖ s ‖ v, except in call data, where they are compact (EIP-2098).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from ledger.chain.contract import abi
from ledger.protocol.errors import ChainError, SignatureError
from ledger.protocol.ledger_state import (
    EquivocationReport,
    SignedStatement,
    StatementKind,
    SubmittedCertificate,
    SubmittedDecision,
)
from ledger.protocol.types import (
    ClientId,
    Commitment,
    Digest,
    Phase,
    Scores,
    SignedCommitment,
    Vote,
    VoteKind,
)


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
    decision: SubmittedDecision
    certificates: tuple[SubmittedCertificate, SubmittedCertificate]


@dataclass(frozen=True, slots=True)
class AbandonCall:
    """An `abandon_round` transaction."""

    round: int


@dataclass(frozen=True, slots=True)
class ReportCall:
    """A `report_equivocation` transaction."""

    report: EquivocationReport


Call: TypeAlias = RegisterCall | CommitCall | DecideCall | AbandonCall | ReportCall


def encode_call(call: Call) -> bytes:
    """Return the call data of a transaction."""
    match call:
        case RegisterCall(words, rest):
            return abi.call_data("register_clients", words, rest)
        case CommitCall(number, signed):
            commitments = [
                (entry.commitment.client, entry.commitment.commitment) for entry in signed
            ]
            signatures = [compact(entry.signature) for entry in signed]
            return abi.call_data("commit_updates", number, commitments, signatures)
        case DecideCall(number, decision, certificates):
            votes = [
                value for certificate in certificates for value in _certificate_values(certificate)
            ]
            return abi.call_data("decide", number, *_decision_values(decision), *votes)
        case AbandonCall(number):
            return abi.call_data("abandon_round", number)
        case ReportCall(report):
            return abi.call_data("report_equivocation", *_report_values(report))


def decode_call(data: bytes) -> Call:
    """Return the call in a transaction's data."""
    name = _names().get(data[:4])
    if name is None:
        raise ChainError(f"0x{data[:4].hex()} names no transaction of the contract")
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


def _decision_values(decision: SubmittedDecision) -> tuple[object, ...]:
    outcome = tuple(getattr(decision, name) for name in _outcome_fields())
    return decision.committee, decision.ranking, decision.base, outcome, decision.incidents


def _outcome_fields() -> tuple[str, ...]:
    """Return the names of the fields of `decide`'s outcome, which are those of the decision."""
    return abi.struct_fields("decide", "outcome")


def _certificate_values(certificate: SubmittedCertificate) -> tuple[object, list[object]]:
    c = certificate
    head = (c.view, c.set_digest, *compact(c.request), c.signers)
    return head, [compact(reply) for reply in c.replies]


def _report_values(report: EquivocationReport) -> tuple[object, ...]:
    position: tuple[int, int, int, Digest]
    match report.first.statement:
        case Vote() as vote:
            position = (vote.round, int(vote.phase), vote.view, vote.base)
        case Scores() as scores:
            position = (scores.round, 0, 0, scores.base)
    statements = [_statement_values(signed) for signed in (report.first, report.second)]
    return report.client, int(report.kind), *position, *statements


def _statement_values(signed: SignedStatement) -> tuple[object, ...]:
    match signed.statement:
        case Vote() as vote:
            return vote.set_digest, vote.result, *compact(signed.signature)
        case Scores() as scores:
            return scores.clients, scores.digest, *compact(signed.signature)


def _register(words: tuple[int, ...], rest: bytes) -> RegisterCall:
    return RegisterCall(words, Digest(rest))


def _commit(
    number: int, words: tuple[tuple[int, bytes], ...], signatures: tuple[Any, ...]
) -> CommitCall:
    if len(words) != len(signatures):
        count = f"{len(words)} commitments have {len(signatures)} signatures"
        raise ChainError(f"the contract refuses it: {count}")
    signed = (
        SignedCommitment(Commitment(number, ClientId(client), Digest(word)), expanded(*signature))
        for (client, word), signature in zip(words, signatures, strict=True)
    )
    return CommitCall(number, tuple(signed))


def _decide(number: int, *values: Any) -> DecideCall:
    committee, ranking, base, outcome, incidents, *votes = values
    decision = SubmittedDecision(
        committee=committee,
        ranking=ranking,
        base=base,
        incidents=incidents,
        **dict(zip(_outcome_fields(), outcome, strict=True)),
    )
    certificates = (_certificate(votes[0], votes[1]), _certificate(votes[2], votes[3]))
    return DecideCall(number, decision, certificates)


def _certificate(values: tuple[Any, ...], replies: tuple[Any, ...]) -> SubmittedCertificate:
    view, set_digest, r, vs, signers = values
    return SubmittedCertificate(
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
    return ReportCall(EquivocationReport(ClientId(client), signed[0], signed[1]))


def _signed(
    client: ClientId, kind: StatementKind, position: list[Any], values: tuple[Any, ...]
) -> SignedStatement:
    number, phase, view, base = position
    first, second, r, vs = values
    if kind is StatementKind.SCORES:
        scores = Scores(number, client, Digest(base), Digest(first), Digest(second))
        return SignedStatement(scores, expanded(r, vs))
    vote_kind = VoteKind.REQUEST if kind is StatementKind.REQUEST else VoteKind.REPLY
    # The contract accepts any phase number: two votes for an unknown phase are still two votes.
    vote = Vote(
        vote_kind, number, cast("Phase", phase), view, Digest(base), Digest(first), Digest(second)
    )
    return SignedStatement(vote, expanded(r, vs))


_CALLS: dict[str, Callable[..., Call]] = {
    "register_clients": _register,
    "commit_updates": _commit,
    "decide": _decide,
    "abandon_round": AbandonCall,
    "report_equivocation": _report,
}


def _names() -> dict[bytes, str]:
    return {abi.selector(name): name for name in _CALLS}
