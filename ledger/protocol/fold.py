"""The one fold of the contract's events into its state.

Heads, and the running digest of a round's commitments, are chains of hashes. History, index,
workers, audit and proofs recompute them here and never take them from an event, so events that lead
to the contract's own state are complete, and nothing that a head commits to was altered.
`rounds.py` specifies the events of transactions; the contract's twin tests compare both with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from ledger.protocol import encoding
from ledger.protocol.encoding import keccak256, u32, u64
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    Deployment,
    Event,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain, RegisteredClient


@dataclass(frozen=True, slots=True)
class RoundStart:
    """The start of a round."""

    round: int
    committee: tuple[ClientId, ...]  # by rank; shorter than C if too few clients are left: the end
    seed: Digest
    opened_block: int

    @staticmethod
    def of(event: Event, block_number: int) -> RoundStart | None:
        """Return the round that an event opens, None for an event that opens none."""
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
HeadEvent: TypeAlias = RoundDecided | RoundAbandoned | ClientBanned
"""The events that move the head."""


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
        """Return the next head, as it follows from this state and an event's other fields."""
        return self.link_of(event).head_after(self.head)

    def link_of(self, event: HeadEvent) -> Link:
        """Return what an event adds to the head."""
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
        """Return the state after the next event.

        Round, head and commitments follow from the events before it; `expected_fields` gives what
        its own must be.
        """
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
            case RoundDecided() | RoundAbandoned():
                is_last = self.round >= self.deployment.rounds
                number = self.round if is_last else self.round + 1
                model = event.model if isinstance(event, RoundDecided) else self.model
                if isinstance(event, RoundAbandoned):
                    is_last |= len(event.next_committee) < self.deployment.members
                start = RoundStart(number, event.next_committee, event.next_seed, block_number)
                ended = replace(self, head=self.head_after(event), model=model)
                return ended.started(start, is_last=is_last)

    def started(self, start: RoundStart, *, is_last: bool = False) -> Self:
        """Return the state in which a round starts; no round is open after the last."""
        return replace(
            self,
            stage=LedgerStage.FINISHED if is_last else LedgerStage.OPEN,
            round=start.round,
            opened_block=start.opened_block,
            seed=start.seed,
            committee=start.committee,
            mined=(),
            commitments=NO_DIGEST,
        )

    def expected_fields(self, event: Event) -> dict[str, object]:
        """Return the fields of the next event that follow from the events before it, by name.

        A round that takes neither commitments nor an end is numbered 0.
        """
        open_round = self.round if self.stage is LedgerStage.OPEN else 0
        match event:
            case ClientsRegistered():
                return {"first": len(self.registry)}
            case LedgerOpened():
                return {"config": self.deployment.config, "model": self.deployment.model}
            case UpdatesCommitted():
                return {"round": open_round}
            case ClientBanned():
                return {"round": self.round, "head": self.head_after(event)}
            case RoundDecided() | RoundAbandoned():
                return {"round": open_round, "head": self.head_after(event)}
            case _:
                return {}

    def registry_digest(self, rest: Digest) -> Digest:
        """Return the digest of all clients to register, given that of those who are missing yet."""
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
    """Return clients with bans; a ban of a client that is not registered is passed over."""
    clients = list(registry)
    for ban in bans:
        if ban.client < len(clients):
            clients[ban.client] = replace(clients[ban.client], banned_in=ban.round)
    return tuple(clients)
