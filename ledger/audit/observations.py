"""Typed observations: the values that an audit reads and recomputes, without a judgement.

Each names the newest block that it rests on. The checks turn them into the results of a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from ledger.audit.evidence import UnavailableBlob
from ledger.audit.report import AuditStep, Fact, Finding, Need
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import INFINITY_BITS, word_client
from ledger.protocol.fold import LedgerState
from ledger.protocol.inputs import MinedCommitment, Participants, RoundClosing
from ledger.protocol.ledger_state import Deployment, Event, RoundDecided
from ledger.protocol.types import Digest, Domain

if TYPE_CHECKING:
    from ledger.audit.evidence import Accusations, ModelStep, RoundEvidence
    from ledger.chain.contract.codec import Call
    from ledger.chain.contract.ledger import LedgerSnapshot


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Something that could not be had, or not be read, though nothing contradicts.

    Attributes:
        round: t; None where it concerns no round.
        detail: which one, or why it could not be had.
    """

    block: int
    need: Need
    round: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two answers of the chain that cannot both be true, or one that cannot be read.

    Attributes:
        step: that fails; None for the fact's own.
        rests_on_all_logs: whether a missing log could make them disagree.
    """

    block: int
    fact: Fact
    subject: str = ""
    recorded: str = ""
    true: str = ""
    round: int | None = None
    step: AuditStep | None = None
    rests_on_all_logs: bool = False


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run: its contract, configuration and first model.

    Attributes:
        address: of the contract, EIP-55.
        document: its configuration; None if the blob cannot be read, or is none.
        lost: why the configuration's blob cannot be read; None if it can.
        malformed: why the blob is no configuration; empty if it is one.
        deployment: what the configuration demands; without one, what the contract says.
        is_possible: whether a contract of this code can have such sizes.
        code: what is wrong with the code on chain; empty if nothing is.
    """

    block: int
    domain: Domain
    address: str
    recorded: Deployment
    document: RunDocument | None
    lost: UnavailableBlob | None
    malformed: str
    deployment: Deployment
    is_possible: bool
    code: str
    model: ModelStep | None


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event that the replay went on with.

    Attributes:
        call: what the transaction asked for, if the specification gave the event from it; None
            where the event had to be believed.
    """

    block: int
    before: LedgerState
    event: Event
    call: Call | None
    transaction: bytes


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it.

    Attributes:
        known: whether seed, committee and model are those that the round opened with; false
            where the record of the round before is missing.
        before: the contract's state just before the round ended, bans included.
        commitments: all that the chain holds of the round, in its order.
        block: number of the block in which it ended.
    """

    round: int
    known: bool
    before: LedgerState
    commitments: tuple[MinedCommitment, ...]
    block: int
    decided: RoundDecided | None
    transaction: bytes

    @property
    def is_in_range(self) -> bool:
        """Say whether a decision's numbers are in range; a believed event may hold anything."""
        event, sizes = self.decided, self.before.deployment
        if event is None:
            return True
        ranked = [word_client(word) for word in event.ranking]
        clients = [*ranked, *event.accepted, *event.next_committee]
        return (
            all(0 <= word < INFINITY_BITS << 32 for word in event.ranking)
            and all(client < sizes.clients for client in clients)
            and all(word < other for word, other in pairwise(event.ranking))
            and len(set(ranked)) == len(ranked)
            and sizes.members <= len(ranked) <= sizes.trainers
        )


@dataclass(frozen=True, slots=True)
class EndedRound:
    """A round that has ended."""

    block: int
    replayed: ReplayedRound
    due: int


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A round that has ended, and the inputs that the chain closed for it."""

    block: int
    replayed: ReplayedRound
    participants: Participants
    closing: RoundClosing


@dataclass(frozen=True, slots=True)
class DecidedRound:
    """A decided round with what was published of it."""

    block: int
    evidence: RoundEvidence
    model: ModelStep
    accusations: Accusations


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding that rests on no single round, and the step that it belongs to."""

    block: int
    step: AuditStep
    finding: Finding


@dataclass(frozen=True, slots=True)
class StateComparison:
    """The contract's own state, and the one that its transactions lead to.

    Attributes:
        believes_registry: whether clients were registered by a transaction that cannot be read.
    """

    block: int
    snapshot: LedgerSnapshot
    state: LedgerState
    believes_registry: bool


@dataclass(frozen=True, slots=True)
class KeptHeadPosition:
    """A head that the auditor kept, and whether the run passes through it.

    Attributes:
        block: that made it; the newest one if no block did.
        round: in or after which round the run has it; None if it never has.
        event: what made it; None for the head that a run starts with.
    """

    block: int
    head: Digest
    round: int | None
    event: type[Event] | None = None


Observation: TypeAlias = (
    Unavailable
    | Disagreement
    | RunStart
    | ReplayedEvent
    | EndedRound
    | ClosedRound
    | DecidedRound
    | Remark
    | StateComparison
    | KeptHeadPosition
)
