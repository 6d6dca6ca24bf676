"""Types of the protocol: participants, signed messages, decisions, and codes with their words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NewType

BARE = "[0-9a-f]{64}"  # a blob's name, as `sha256sum` prints it
PREFIXED = f"0x{BARE}"  # a digest in an answer or in a document
BARE_ANY_CASE = "[0-9a-fA-F]{64}"  # people may type any case; programs write lower case
PREFIXED_ANY_CASE = f"0x{BARE_ANY_CASE}"  # a head that a user has copied from an audit
EITHER_FORM_ANY_CASE = f"(0x)?{BARE_ANY_CASE}"  # a digest in a search

PROTOCOL_VERSION = 3  # in every document and in the EIP-712 domain (docs/reference/protocol)
ClientId = NewType("ClientId", int)  # index of a registered client, in [0, K)
Digest = NewType("Digest", bytes)  # 32 bytes: sha256 of a blob, or keccak256 as in the contract
Address = NewType("Address", bytes)  # a 20-byte Ethereum address
NO_DIGEST = Digest(bytes(32))


class Phase(IntEnum):
    """Phase of a vote (Algorithm 1, lines 11 and 12)."""

    AGGREGATION = 1
    ELECTION = 2


class AcceptanceForm(IntEnum):
    """Form of the contract's rule for S_a; the number in its constructor."""

    FIRST = 1
    LAST = 2
    BELOW_TWO = 3


class Quorum(StrEnum):
    """Number of equal replies that decide: the paper's majority, or a Byzantine quorum."""

    PAPER = "paper"
    BFT = "bft"


class Beacon(StrEnum):
    """Further input of the next seed: nothing (repeatable) or the parent block's hash."""

    NONE = "none"
    BLOCK = "block"


class VoteKind(StrEnum):
    """The two messages of Algorithm 2: the primary's request and a member's reply."""

    REQUEST = "Request"
    REPLY = "Reply"


class DropoutReason(IntEnum):
    """Reason why an active client has no usable update."""

    NO_COMMITMENT = 1
    PAYLOAD_MISSING = 2
    PAYLOAD_MALFORMED = 3


class RefusalReason(IntEnum):
    """Reason why a signed score vector does not count; of several the lowest."""

    NOT_A_VECTOR = 1
    OF_ANOTHER = 2
    NO_USABLE_UPDATE = 3
    OTHER_CLIENTS = 4
    OUT_OF_RANGE = 5
    FALSE_DISTANCE = 6
    TWO_VECTORS = 7


class IncidentKind(IntEnum):
    """Misbehaviour or failure of a member during a vote."""

    SILENT = 1
    NO_QUORUM = 2
    WRONG_PROPOSAL = 3
    EQUIVOCATION = 4


@dataclass(frozen=True, slots=True)
class Domain:
    """The EIP-712 domain: one run's contract on one chain."""

    chain_id: int  # EIP-155
    contract: Address
    salt: Digest  # `encoding.domain_salt`; a restarted chain has the same id and address


@dataclass(frozen=True, slots=True)
class Commitment:
    """A client's promise of its update, bound to the client: see `encoding.commitment_of`."""

    round: int
    client: ClientId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class Scores:
    """A member's claim of its score vector."""

    round: int
    member: ClientId
    base: Digest  # the round's commitments digest after its closing block
    clients: Digest  # set digest, ascending, of all usable updates
    digest: Digest  # sha256 of the vector's blob

    @property
    def slot(self) -> tuple[int, ClientId, Digest]:
        """A member may sign one vector for each round and base."""
        return self.round, self.member, self.base


@dataclass(frozen=True, slots=True)
class Upload:
    """A client's wish that a store keeps some bytes; no contract ever reads it."""

    round: int
    client: ClientId
    url: str  # of the store, as `base_url` writes it
    digest: Digest  # sha256 of the bytes
    size: int


@dataclass(frozen=True, slots=True)
class EnvironmentStatement:
    """A client's statement of the environment that trained its update of a round."""

    round: int
    client: ClientId
    environment: Digest


@dataclass(frozen=True, slots=True)
class ReplayStatement:
    """An auditor's statement that it has repeated an update, with the result."""

    run: Digest  # sha256 of the run document
    round: int
    client: ClientId
    verdict: int
    environment: Digest  # digest of the repetition's `TrainingEnvironment`
    witness: Digest


@dataclass(frozen=True, slots=True)
class Slot:
    """Slot of a vote: a member may sign one for each, on one contract of one chain."""

    kind: VoteKind
    round: int
    phase: Phase
    view: int
    base: Digest


@dataclass(frozen=True, slots=True)
class Vote:
    """A request or a reply of Algorithm 2: one set of clients and one result in one view."""

    kind: VoteKind
    round: int
    phase: Phase
    view: int
    base: Digest  # the round's commitments digest; the paper's time stamp
    set_digest: Digest  # of the set that is voted on
    result: Digest

    @property
    def slot(self) -> Slot:
        """Slot of this vote: two different votes of one member in one slot are equivocation."""
        return Slot(self.kind, self.round, self.phase, self.view, self.base)


@dataclass(frozen=True, slots=True)
class SignedCommitment:
    """A commitment with its client's signature (65 bytes r, s, v)."""

    commitment: Commitment
    signature: bytes


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


DROPOUTS: dict[DropoutReason, str] = {
    DropoutReason.NO_COMMITMENT: "it had not committed by the closing block",
    DropoutReason.PAYLOAD_MISSING: "its payload was missing",
    DropoutReason.PAYLOAD_MALFORMED: "its payload is not an update of the model",
}

REFUSALS: dict[RefusalReason, str] = {
    RefusalReason.NOT_A_VECTOR: "its published data is not a score vector",
    RefusalReason.OF_ANOTHER: "its vector belongs to another round, member or base",
    RefusalReason.NO_USABLE_UPDATE: "it has no usable update to compare with",
    RefusalReason.OTHER_CLIENTS: "its vector and its claim name different clients",
    RefusalReason.OUT_OF_RANGE: "a distance is out of range",
    RefusalReason.FALSE_DISTANCE: "a distance is false",
    RefusalReason.TWO_VECTORS: "it signed two different vectors",
}

PHASES: dict[Phase, str] = {Phase.AGGREGATION: "the aggregation", Phase.ELECTION: "the election"}

INCIDENTS: dict[IncidentKind, str] = {
    IncidentKind.SILENT: "sent no request as primary",
    IncidentKind.NO_QUORUM: "found no quorum for its request",
    IncidentKind.WRONG_PROPOSAL: "signed a wrong request",
    IncidentKind.EQUIVOCATION: "signed two different votes",
}
