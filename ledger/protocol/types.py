"""The words of the protocol as types: who acts, what is signed, what is decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NewType

ClientId = NewType("ClientId", int)
"""Index of a registered client, in [0, K)."""

Digest = NewType("Digest", bytes)
"""A 32-byte hash: sha256 of a blob, or keccak256 of something the contract computes."""

Address = NewType("Address", bytes)
"""A 20-byte Ethereum address."""

NO_DIGEST = Digest(bytes(32))


class Phase(IntEnum):
    """What the committee votes on (Algorithm 1, lines 11 and 12)."""

    AGGREGATION = 1
    ELECTION = 2


class Strategy(IntEnum):
    """Selection strategies: I and II of the paper, III ours (within the committee's spread)."""

    NEAREST = 1
    FARTHEST = 2
    WITHIN_SPREAD = 3


class Scoring(StrEnum):
    """How a trainer's distances to the members become one number."""

    MEAN = "mean"
    MEDIAN = "median"


class Beacon(StrEnum):
    """What else flows into the next seed: nothing (repeatable) or the parent block's hash."""

    NONE = "none"
    BLOCK = "block"


class VoteKind(StrEnum):
    """The two messages of Algorithm 2: the primary's request and a member's reply."""

    REQUEST = "Request"
    REPLY = "Reply"


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """One client as the contract keeps it: its key's address and its claimed samples n_k."""

    address: Address
    samples: int
    banned: bool = False


@dataclass(frozen=True, slots=True)
class Domain:
    """The EIP-712 domain: one contract on one chain."""

    chain_id: int
    contract: Address


@dataclass(frozen=True, slots=True)
class Commitment:
    """A client's promise of its update: sha256 of a payload that nobody has seen yet."""

    round: int
    client: ClientId
    payload: Digest


@dataclass(frozen=True, slots=True)
class Scores:
    """A member's claim of its score vector, by sha256 of the vector's blob."""

    round: int
    member: ClientId
    digest: Digest


@dataclass(frozen=True, slots=True)
class Vote:
    """A request or a reply of Algorithm 2: one set of clients and one result in one view."""

    kind: VoteKind
    round: int
    phase: Phase
    view: int
    timestamp: int
    set_digest: Digest
    result: Digest


@dataclass(frozen=True, slots=True)
class SignedScores:
    """A score claim with its member's signature (65 bytes r, s, v)."""

    scores: Scores
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignedVote:
    """A vote with its member's signature (65 bytes r, s, v)."""

    member: ClientId
    vote: Vote
    signature: bytes
