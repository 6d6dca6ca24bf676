"""The constructor's arguments, those of the contract's transactions, and its events.

`fold.py` has the state that they lead to, and `rounds.py` the transitions; together they specify
`contracts/committee_ledger.vy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self

from ledger.protocol import encoding
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Digest,
    Domain,
    RegisteredClient,
    Scores,
    SignedVote,
    Slot,
    Vote,
    VoteKind,
)


class LedgerStage(IntEnum):
    """Stage of a deployment."""

    REGISTERING = 0
    OPEN = 1
    FINISHED = 2


@dataclass(frozen=True, slots=True)
class Deployment:
    """The constructor's arguments: everything that never changes."""

    config: Digest
    registry: Digest
    clients: int
    trainers: int
    members: int
    aggregation_ppm: int
    form: AcceptanceForm  # S_a follows from the ranking by it
    rounds: int
    commit_blocks: int  # after the opening one, in which commitments are taken
    deadline_blocks: int  # after which an undecided round may be abandoned
    replies: int
    beacon: Beacon
    model: Digest  # digest of w_1


@dataclass(frozen=True, slots=True)
class BlockContext:
    """Context of a transaction: its block, and how it reached the ledger."""

    number: int
    parent_hash: Digest
    sent_by_account: bool = True  # False if a contract passed the transaction on
    is_delegated: bool = False  # the sender has code (EIP-7702)


@dataclass(frozen=True, slots=True)
class QuorumCertificate:
    """A decision's proof: the primary's request and a quorum of equal replies."""

    request: SignedVote
    replies: tuple[SignedVote, ...]  # of other members, in the order of the committee

    @property
    def vote(self) -> Vote:
        """The vote that both request and replies carry."""
        return self.request.vote

    def signers(self, committee: Sequence[ClientId]) -> int:
        """Return the seats of those who replied, as a bitmap."""
        return sum(1 << committee.index(reply.member) for reply in self.replies)


@dataclass(frozen=True, slots=True)
class SubmittedCertificate:
    """A certificate as a transaction carries it."""

    view: int
    set_digest: Digest
    request: bytes
    signers: int
    replies: tuple[bytes, ...]  # their signatures, by ascending seat


@dataclass(frozen=True, slots=True)
class SubmittedDecision:
    """The arguments of `decide` apart from round and certificates."""

    committee: tuple[ClientId, ...]  # S_c, by seats
    ranking: tuple[int, ...]
    base: Digest
    model: Digest  # digest of w_{t+1}
    updates_root: Digest
    scores_root: Digest
    reveal: Digest  # of the ranked trainers' payload digests
    record: Digest
    incidents: Digest  # digest of the document, zeros without one; unsigned

    @classmethod
    def of(
        cls,
        preimage: encoding.ResultPreimage,
        committee: tuple[ClientId, ...],
        ranking: tuple[int, ...],
        base: Digest,
        incidents: Digest,
    ) -> Self:
        """Return the decision on a result, whose other fields are those of its preimage."""
        named = {name: getattr(preimage, name) for name in _SHARED_FIELDS}
        return cls(committee=committee, ranking=ranking, base=base, incidents=incidents, **named)

    def opening(self) -> encoding.ResultPreimage:
        return _opening(self)


class StatementKind(IntEnum):
    """Kind of a statement that was signed twice, by its number in `report_equivocation`."""

    REQUEST = 1
    REPLY = 2
    SCORES = 3


SIGNED_TWICE: dict[StatementKind | None, str] = {
    StatementKind.REQUEST: "signed two different requests for one vote",
    StatementKind.REPLY: "signed two different replies in one vote",
    StatementKind.SCORES: "signed two different score vectors",
    None: "signed two different statements",
}
"""Reason of a ban; None where the call that proves it is not available."""


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A vote or a score claim with its signature (65 bytes r, s, v)."""

    statement: Vote | Scores
    signature: bytes


@dataclass(frozen=True, slots=True)
class EquivocationReport:
    """Two different signed statements of one client for one place: the proof that bans it.

    Both are votes for one slot, or score claims for one round, base and clients.
    """

    client: ClientId
    first: SignedStatement
    second: SignedStatement

    def __post_init__(self) -> None:
        """Refuse what the contract's arguments cannot even say."""
        first, second = _place(self.first.statement), _place(self.second.statement)
        if first != second:
            raise ValueError("the statements are not of one kind, round, phase, view and base")
        if isinstance(self.first.statement, Scores) and self.first.statement.member != self.client:
            raise ValueError("the score vectors are not the accused's")

    @property
    def kind(self) -> StatementKind:
        statement = self.first.statement
        if isinstance(statement, Scores):
            return StatementKind.SCORES
        requested = statement.kind is VoteKind.REQUEST
        return StatementKind.REQUEST if requested else StatementKind.REPLY


@dataclass(frozen=True, slots=True)
class LedgerDeployed:
    """Event: the contract was created; only its constructor logs this."""

    salt: Digest


@dataclass(frozen=True, slots=True)
class ClientsRegistered:
    """Event: a batch of clients joined the registry."""

    first: ClientId
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LedgerOpened:
    """Event: the registry is complete and round 1 is open."""

    config: Digest
    seed: Digest
    committee: tuple[ClientId, ...]
    model: Digest


@dataclass(frozen=True, slots=True)
class UpdatesCommitted:
    """Event: clients committed to their updates; those whose commitment was taken."""

    round: int
    clients: tuple[ClientId, ...]
    commitments: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class RoundDecided:
    """Event: everything that a round decided."""

    round: int
    ranking: tuple[int, ...]
    accepted: tuple[ClientId, ...]
    next_committee: tuple[ClientId, ...]
    base: Digest
    model: Digest
    updates_root: Digest
    scores_root: Digest
    reveal: Digest
    record: Digest
    incidents: Digest
    views: tuple[int, int]
    primaries: tuple[ClientId, ClientId]
    signers: tuple[int, int]
    next_seed: Digest
    head: Digest

    def opening(self) -> encoding.ResultPreimage:
        return _opening(self)

    def result(self) -> Digest:
        """Return the result that the committee voted on with the sets."""
        return encoding.aggregation_result(self.opening())


@dataclass(frozen=True, slots=True)
class RoundAbandoned:
    """Event: a round ended without a decision."""

    round: int
    next_committee: tuple[ClientId, ...]
    next_seed: Digest
    head: Digest


@dataclass(frozen=True, slots=True)
class ClientBanned:
    """Event: a client signed two different statements and is banned from the next round on."""

    round: int
    client: ClientId
    head: Digest


Event = (
    LedgerDeployed
    | ClientsRegistered
    | LedgerOpened
    | UpdatesCommitted
    | RoundDecided
    | RoundAbandoned
    | ClientBanned
)


def domain_of(
    deployment: Deployment, chain_id: int, contract: Address, parent_hash: Digest
) -> Domain:
    """Return the EIP-712 domain that the constructor fixes in a block with this parent."""
    beacon = parent_hash if deployment.beacon is Beacon.BLOCK else NO_DIGEST
    salt = encoding.domain_salt(deployment.config, deployment.registry, beacon)
    return Domain(chain_id, contract, salt)


def submitted_certificate(
    certificate: QuorumCertificate, committee: Sequence[ClientId]
) -> SubmittedCertificate:
    """Return a certificate as a transaction carries it."""
    places = sorted(certificate.replies, key=lambda reply: committee.index(reply.member))
    vote = certificate.vote
    return SubmittedCertificate(
        view=vote.view,
        set_digest=vote.set_digest,
        request=certificate.request.signature,
        signers=certificate.signers(committee),
        replies=tuple(reply.signature for reply in places),
    )


def deployment_of(
    parameters: Parameters,
    config: Digest,
    registry: Sequence[RegisteredClient],
    model: Digest,
) -> tuple[Deployment, tuple[tuple[tuple[int, ...], Digest], ...]]:
    """Return the constructor's arguments, and (words, rest) of each registration in order."""
    first, batches = registry_batches([encoding.registry_word(client) for client in registry])
    digests = {"config", "registry", "model"}
    names = [field.name for field in fields(Deployment) if field.name not in digests]
    sizes = {name: getattr(parameters, name) for name in names}
    return Deployment(config=config, registry=first, model=model, **sizes), batches


def registry_batches(
    words: Sequence[int], size: int = 256
) -> tuple[Digest, tuple[tuple[tuple[int, ...], Digest], ...]]:
    """Return a registry's digest, and (words, rest) of each batch that registers it."""
    batches: list[tuple[tuple[int, ...], Digest]] = []
    rest = NO_DIGEST
    for start in reversed(range(0, len(words), size)):
        batch = tuple(words[start : start + size])
        batches.insert(0, (batch, rest))
        rest = encoding.registry_digest(batch, rest)
    return rest, tuple(batches)


def _place(statement: Vote | Scores) -> Slot | tuple[int, ClientId, Digest]:
    """Return the slot of a statement, without the clients of a vector."""
    if isinstance(statement, Scores):
        return statement.round, statement.member, statement.base
    return statement.slot


_SHARED_FIELDS = tuple(
    field.name for field in fields(encoding.ResultPreimage) if field.name != "ranking_digest"
)
"""Fields of a preimage that a decision and its event have too."""


def _opening(decided: SubmittedDecision | RoundDecided) -> encoding.ResultPreimage:
    named = {name: getattr(decided, name) for name in _SHARED_FIELDS}
    return encoding.ResultPreimage(ranking_digest=encoding.ranking_digest(decided.ranking), **named)
