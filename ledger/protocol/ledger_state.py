"""What the contract keeps, what its transactions carry, and what its events tell.

The transitions between these states are `rounds.py`; both together specify
`contracts/committee_ledger.vy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ledger.protocol import encoding
from ledger.protocol.types import (
    NO_DIGEST,
    Beacon,
    ClientId,
    Digest,
    Domain,
    RegisteredClient,
    Strategy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.parameters import Parameters


class Stage(IntEnum):
    """Where a deployment stands."""

    REGISTERING = 0
    OPEN = 1
    FINISHED = 2


@dataclass(frozen=True, slots=True)
class Deployment:
    """The constructor's arguments: everything that never changes.

    Attributes:
        config: digest of the run's configuration.
        registry: digest of the clients to register.
        clients: K.
        trainers: n.
        members: C.
        aggregation_ppm: α in parts per million.
        strategy: how S_a follows from the ranking.
        rounds: T.
        deadline_blocks: blocks after which an undecided round may be abandoned.
        beacon: what else flows into the next seed.
        committee: S_c of round 1.
        model: digest of w_1.
    """

    config: Digest
    registry: Digest
    clients: int
    trainers: int
    members: int
    aggregation_ppm: int
    strategy: Strategy
    rounds: int
    deadline_blocks: int
    beacon: Beacon
    committee: tuple[ClientId, ...]
    model: Digest


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the contract keeps.

    Attributes:
        deployment: what never changes.
        domain: this contract on this chain.
        stage: registering, open or finished.
        round: t; 0 before the first.
        opened_block: block in which the round opened.
        seed: seed_t.
        committee: S_c.
        model: digest of w_t.
        head: commits to the whole history.
        registry_rest: what the next batch of clients must match.
        registry: the clients registered so far.
        committed: clients with a commitment in this round.
        commitments: running digest of them.
    """

    deployment: Deployment
    domain: Domain
    stage: Stage
    round: int
    opened_block: int
    seed: Digest
    committee: tuple[ClientId, ...]
    model: Digest
    head: Digest
    registry_rest: Digest
    registry: tuple[RegisteredClient, ...]
    committed: frozenset[ClientId]
    commitments: Digest


@dataclass(frozen=True, slots=True)
class BlockContext:
    """What a transaction sees of its block."""

    number: int
    parent_hash: Digest


@dataclass(frozen=True, slots=True)
class SubmittedCertificate:
    """A certificate as a transaction carries it.

    Attributes:
        view: v.
        timestamp: of the request.
        set_digest: the set that was voted on.
        request: the primary's signature.
        signers: places of those who replied, as a bitmap.
        replies: their signatures, by ascending place.
    """

    view: int
    timestamp: int
    set_digest: Digest
    request: bytes
    signers: int
    replies: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SubmittedDecision:
    """The arguments of `decide` beside round and certificates.

    Attributes:
        committee: S_c, by places.
        ranking: ranking words, best first.
        model: digest of w_{t+1}.
        updates_root: Merkle root over the ranked updates.
        scores_root: Merkle root over the counted score vectors.
        threshold_bits: of strategy III, 0 for I and II.
        record: digest of the round's record blob, a pointer.
    """

    committee: tuple[ClientId, ...]
    ranking: tuple[int, ...]
    model: Digest
    updates_root: Digest
    scores_root: Digest
    threshold_bits: int
    record: Digest


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
    """Event: clients committed to their updates."""

    round: int
    clients: tuple[ClientId, ...]
    payloads: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class RoundDecided:
    """Event: everything that a round decided."""

    round: int
    ranking: tuple[int, ...]
    accepted: tuple[ClientId, ...]
    next_committee: tuple[ClientId, ...]
    model: Digest
    updates_root: Digest
    scores_root: Digest
    threshold_bits: int
    record: Digest
    views: tuple[int, int]
    primaries: tuple[ClientId, ClientId]
    signers: tuple[int, int]
    next_seed: Digest
    head: Digest

    def aggregation_result(self) -> Digest:
        """Return what the committee voted on beside S_a."""
        return encoding.aggregation_result(
            self.model,
            self.updates_root,
            self.scores_root,
            encoding.ranking_digest(self.ranking),
            self.threshold_bits,
        )


@dataclass(frozen=True, slots=True)
class RoundAbandoned:
    """Event: a round ended without a decision."""

    round: int
    next_committee: tuple[ClientId, ...]
    next_seed: Digest
    head: Digest


@dataclass(frozen=True, slots=True)
class ClientBanned:
    """Event: a client signed two different votes and is banned."""

    round: int
    client: ClientId
    head: Digest


Event = (
    ClientsRegistered
    | LedgerOpened
    | UpdatesCommitted
    | RoundDecided
    | RoundAbandoned
    | ClientBanned
)
Step = tuple[LedgerState, tuple[Event, ...]]


def deployment_of(
    parameters: Parameters,
    config: Digest,
    registry: Sequence[RegisteredClient],
    committee: tuple[ClientId, ...],
    model: Digest,
) -> tuple[Deployment, tuple[tuple[tuple[int, ...], Digest], ...]]:
    """Return the constructor's arguments and the batches of clients to register.

    Args:
        parameters: of the run.
        config: digest of its configuration.
        registry: all clients.
        committee: S_c of round 1.
        model: digest of w_1.

    Returns:
        The deployment, and (words, rest) of each `register_clients` transaction in order.
    """
    first, batches = registry_batches([encoding.registry_word(client) for client in registry])
    deployment = Deployment(
        config=config,
        registry=first,
        clients=parameters.clients,
        trainers=parameters.trainers,
        members=parameters.members,
        aggregation_ppm=parameters.aggregation_ppm,
        strategy=parameters.strategy,
        rounds=parameters.rounds,
        deadline_blocks=parameters.deadline_blocks,
        beacon=parameters.beacon,
        committee=committee,
        model=model,
    )
    return deployment, batches


def registry_batches(
    words: Sequence[int], size: int = 256
) -> tuple[Digest, tuple[tuple[tuple[int, ...], Digest], ...]]:
    """Return a registry's digest and the batches that register it.

    Args:
        words: registry word of each client.
        size: clients of a batch, at most.

    Returns:
        The digest, and (words, rest) of each batch: every batch carries the digest of the rest.
    """
    batches: list[tuple[tuple[int, ...], Digest]] = []
    rest = NO_DIGEST
    for start in reversed(range(0, len(words), size)):
        batch = tuple(words[start : start + size])
        batches.insert(0, (batch, rest))
        rest = encoding.registry_digest(batch, rest)
    return rest, tuple(batches)
