"""Arguments of the contract's constructor and transactions, its events, and the fold of these.

`rounds.py` has the transitions; together they specify `contracts/committee_ledger.vy`, and the twin
tests compare both with it.

Heads, and the running digest of a round's commitments, are chains of hashes. History, workers,
audit and proofs recompute them here and never take them from an event. So events that lead to the
contract's own state are complete and unaltered in everything that a head commits to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from typing import Any, Self, TypeAlias

from ledger.protocol import encoding
from ledger.protocol.encoding import RegisteredClient, keccak256, u32, u64
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Digest,
    Domain,
    Scores,
    SignedVote,
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
        return self.request.vote

    def signers(self, committee: Sequence[ClientId]) -> int:
        """Return the seats of the members that replied, as a bitmap."""
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
    """Two different signed statements of one client for one place: the proof that bans it."""

    client: ClientId
    first: SignedStatement
    second: SignedStatement

    def __post_init__(self) -> None:
        if self.first.statement.slot != self.second.statement.slot:
            raise ValueError("the statements are not of one kind, round, phase, view and base")
        if isinstance(self.first.statement, Scores) and self.first.statement.member != self.client:
            raise ValueError("the score vectors are not the accused's")

    @property
    def kind(self) -> StatementKind:
        statement = self.first.statement
        if isinstance(statement, Scores):
            return StatementKind.SCORES
        return StatementKind.REQUEST if statement.kind is VoteKind.REQUEST else StatementKind.REPLY


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


@dataclass(frozen=True, slots=True)
class MinedCommitment:
    """A commitment as the chain holds it."""

    block: int
    client: ClientId
    commitment: Digest


Event = (
    LedgerDeployed
    | ClientsRegistered
    | LedgerOpened
    | UpdatesCommitted
    | RoundDecided
    | RoundAbandoned
    | ClientBanned
)


def domain_of(deployment: Deployment, chain_id: int, contract: Address, beacon: Digest) -> Domain:
    """Return the constructor's domain; the beacon is its block's parent hash, or zeros."""
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
    parameters: Parameters, config: Digest, registry: Sequence[RegisteredClient], model: Digest
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


# Fields of a preimage that a decision and its event have too.
_SHARED_FIELDS = ("model", "updates_root", "scores_root", "reveal", "record")


def _opening(decided: SubmittedDecision | RoundDecided) -> encoding.ResultPreimage:
    named = {name: getattr(decided, name) for name in _SHARED_FIELDS}
    return encoding.ResultPreimage(ranking_digest=encoding.ranking_digest(decided.ranking), **named)


@dataclass(frozen=True, slots=True)
class RoundStart:
    """The start of a round."""

    round: int
    committee: tuple[ClientId, ...]  # by rank; shorter than C if too few clients are left: the end
    seed: Digest
    opened_block: int

    @staticmethod
    def of(event: Event, block_number: int) -> RoundStart | None:
        if isinstance(event, LedgerOpened):
            return RoundStart(1, event.committee, event.seed, block_number)
        if isinstance(event, RoundDecided | RoundAbandoned):
            return RoundStart(event.round + 1, event.next_committee, event.next_seed, block_number)
        return None


@dataclass(frozen=True, slots=True)
class DecisionLink:
    """The part of a head that a decision adds."""

    round: int
    seed: Digest
    commitments: Digest  # the commitments digest when the decision ran
    accepted: Digest  # set digest of S_a
    committee: Digest
    result: Digest
    votes: Digest

    def head_after(self, head: Digest) -> Digest:
        begin = head + u64(self.round) + self.seed + self.commitments
        return keccak256(begin + self.accepted + self.committee + self.result + self.votes)


@dataclass(frozen=True, slots=True)
class AbandonmentLink:
    """The part of a head that an abandoned round adds; `committee` is the drawn one's digest."""

    round: int
    seed: Digest
    commitments: Digest
    committee: Digest

    def head_after(self, head: Digest) -> Digest:
        begin = head + u64(self.round) + self.seed
        return keccak256(begin + b"abandoned" + self.commitments + self.committee)


@dataclass(frozen=True, slots=True)
class BanLink:
    """The part of a head that a ban adds."""

    round: int
    client: ClientId

    def head_after(self, head: Digest) -> Digest:
        return keccak256(head + u64(self.round) + b"banned" + u32(self.client))


EndLink: TypeAlias = DecisionLink | AbandonmentLink
Link: TypeAlias = DecisionLink | AbandonmentLink | BanLink
HeadEvent: TypeAlias = RoundDecided | RoundAbandoned | ClientBanned  # the events that move the head


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The contract's state, as far as its events give it."""

    deployment: Deployment
    stage: LedgerStage
    round: int  # t; 0 before the first
    opened_block: int
    seed: Digest
    committee: tuple[ClientId, ...]  # S_c
    model: Digest  # digest of w_t
    head: Digest
    registry: tuple[RegisteredClient, ...] = ()
    mined: tuple[MinedCommitment, ...] = ()  # of the round, in chain order
    commitments: Digest = NO_DIGEST
    batches: tuple[int, ...] = ()  # sizes of the registrations, over which the registry's digest is
    deployments: int = 0

    @classmethod
    def at_deployment(cls, deployment: Deployment, **more: Any) -> Self:
        """Return the state that the constructor leaves, before its own event."""
        start = LedgerStage.REGISTERING, 0, 0, NO_DIGEST, ()
        return cls(deployment, *start, deployment.model, deployment.config, **more)

    def head_after(self, event: HeadEvent) -> Digest:
        return self.link_of(event).head_after(self.head)

    def link_of(self, event: HeadEvent) -> Link:
        if isinstance(event, ClientBanned):
            return BanLink(self.round, event.client)
        committee = encoding.set_digest(event.next_committee)
        before = self.round, self.seed, self.commitments
        if isinstance(event, RoundAbandoned):
            return AbandonmentLink(*before, committee)
        accepted = encoding.set_digest(event.accepted)
        votes = encoding.votes_digest(event.views, event.signers, event.incidents)
        return DecisionLink(*before, accepted, committee, event.result(), votes)

    def after(self, event: Event, block_number: int) -> Self:
        """Return the state after the next event, whose own round and head are not trusted."""
        match event:
            case LedgerDeployed():
                return replace(self, deployments=self.deployments + 1)
            case ClientsRegistered(_, words):
                registered = tuple(map(encoding.registered_client, words))
                batches = (*self.batches, len(words))
                return replace(self, registry=self.registry + registered, batches=batches)
            case LedgerOpened(_, seed, committee, model):
                is_last = len(committee) < self.deployment.members
                start = RoundStart(self.round + 1, committee, seed, block_number)
                return replace(self, model=model).started(start, is_last=is_last)
            case UpdatesCommitted():
                mined = mined_commitments(event, block_number)
                counted = [(each.client, each.commitment) for each in mined]
                digest = encoding.commitments_chain(counted, self.commitments)
                return replace(self, mined=self.mined + mined, commitments=digest)
            case ClientBanned():
                registry = registry_with_bans(self.registry, [replace(event, round=self.round)])
                return replace(self, registry=registry, head=self.head_after(event))
            case _:  # a decided or an abandoned round
                is_last = self.round >= self.deployment.rounds
                number = self.round if is_last else self.round + 1
                model = event.model if isinstance(event, RoundDecided) else self.model
                if isinstance(event, RoundAbandoned):
                    is_last |= len(event.next_committee) < self.deployment.members
                start = RoundStart(number, event.next_committee, event.next_seed, block_number)
                ended = replace(self, head=self.head_after(event), model=model)
                return ended.started(start, is_last=is_last)

    def started(self, start: RoundStart, *, is_last: bool = False) -> Self:
        """Return the state at the start of a round; no round is open after the last."""
        stage = LedgerStage.FINISHED if is_last else LedgerStage.OPEN
        return replace(self, stage=stage, mined=(), commitments=NO_DIGEST, **asdict(start))

    def registry_digest(self, rest: Digest) -> Digest:
        """Return the digest of all clients to register, given the digest of the missing ones."""
        end = len(self.registry)
        for size in reversed(self.batches):
            batch = self.registry[end - size : end]
            words = [encoding.registry_word(replace(client, banned_in=0)) for client in batch]
            rest, end = encoding.registry_digest(words, rest), end - size
        return rest


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState(LedgerView):
    """The contract's state with the fields that no event gives."""

    domain: Domain
    registry_rest: Digest  # digest that the next batch of clients must match

    @property
    def committed(self) -> frozenset[ClientId]:
        return frozenset(mined.client for mined in self.mined)


def mined_commitments(event: Event, block_number: int) -> tuple[MinedCommitment, ...]:
    """Return the commitments of an event with the block that holds them; of most events none."""
    if not isinstance(event, UpdatesCommitted):
        return ()
    pairs = zip(event.clients, event.commitments, strict=True)
    return tuple(MinedCommitment(block_number, *pair) for pair in pairs)


def links_of(view: LedgerView, events: Iterable[Event]) -> Iterator[Link]:
    """Yield the links that events add to the head, given the state before them."""
    for event in events:
        if isinstance(event, HeadEvent):
            yield view.link_of(event)
        view = view.after(event, view.opened_block)


def registry_with_bans(
    registry: Sequence[RegisteredClient], bans: Iterable[ClientBanned]
) -> tuple[RegisteredClient, ...]:
    """Return clients with bans; a ban of a client that is not registered is ignored."""
    clients = list(registry)
    for ban in bans:
        if ban.client < len(clients):
            clients[ban.client] = replace(clients[ban.client], banned_in=ban.round)
    return tuple(clients)
