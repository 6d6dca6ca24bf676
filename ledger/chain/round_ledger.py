"""The ports of a run's ledger, for participants and readers.

Two adapters implement them: the contract on a chain (`contract.committee_ledger.LedgerWriter`) and
the same transitions in memory (`memory.MemoryLedger`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ledger.chain.ports import Block, IncompleteLogsError
from ledger.protocol.fold import LedgerState, RoundStart
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.ledger_state import (
    ClientBanned,
    Deployment,
    EquivocationReport,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
    SubmittedCertificate,
    SubmittedDecision,
)
from ledger.protocol.types import RegisteredClient, SignedCommitment

if TYPE_CHECKING:
    from ledger.chain.contract.codec import RecordedEvent
    from ledger.chain.contract.ledger import LedgerSnapshot


class RoundHistory(Protocol):
    """Read access to a run's ledger.

    Every method may raise a ChainError if the ledger is on a chain.
    """

    @property
    def is_recorded(self) -> bool:
        """True if it is on a chain, where others can read and audit it."""

    @property
    def from_block(self) -> int:
        """Number of the deploying block."""

    @property
    def node(self) -> str | None:
        """Address of the node that answers, without credentials; None for a file or memory."""

    def deployment(self) -> Deployment:
        """Return the values fixed at deployment."""

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return its state after a block, None for the newest."""

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, without bans."""

    def bans(self, to_block: int | None = None) -> tuple[ClientBanned, ...]:
        """Return every ban up to a block, oldest first."""

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return the start of a round as of a block; None if it is not open."""

    def commitments(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[MinedCommitment, ...]:
        """Return the commitments of a round up to a block, oldest first."""

    def round_events(self, round_number: int, to_block: int | None = None) -> list[RecordedEvent]:
        """Return every event of a round up to a block, oldest first."""

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return every event in a range of blocks, both ends included, oldest first."""

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return the last or the first outcomes of rounds up to a block, at most `limit`."""


MAX_ROUNDS_BETWEEN_CALLS = 4
"""Rounds that may end between two requests to a node."""


def last_ended(state: LedgerSnapshot | LedgerState) -> int:
    """Return the number of the newest ended round, 0 before the first end."""
    if state.stage is LedgerStage.FINISHED:
        return state.round
    return max(0, state.round - 1)


def ends_after(ledger: RoundHistory, round_number: int) -> list[RoundDecided | RoundAbandoned]:
    """Return the outcomes of all ended rounds after one (0 for all), oldest first."""
    last = last_ended(ledger.state())
    ends: dict[int, RoundDecided | RoundAbandoned] = {}
    if last > round_number:
        for recorded in ledger.outcomes(last - round_number + MAX_ROUNDS_BETWEEN_CALLS):
            if isinstance(recorded.event, RoundDecided | RoundAbandoned):
                ends[recorded.event.round] = recorded.event
    missing = next((n for n in range(round_number + 1, last + 1) if n not in ends), None)
    if missing is not None:
        raise IncompleteLogsError(
            ledger.node, f"round {missing} of {last} that ended has no end in the logs"
        )
    return [ends[number] for number in range(round_number + 1, last + 1)]


class RoundLedger(RoundHistory, Protocol):
    """Write access to a run's ledger.

    A transaction takes one block, also if it is refused: the ProtocolRefusal is then raised.
    """

    def newest_block(self) -> Block:
        """Return the newest block."""

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        """Return the number of the newest final block; see `finality.rule`."""

    def block(self, number: int) -> Block:
        """Return one block, 0 for the first."""

    def mine(self, blocks: int) -> None:
        """Let a number of empty blocks pass."""

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether these commitments would be accepted now, without sending them."""

    def commit_updates(self, round_number: int, signed: Sequence[SignedCommitment]) -> object:
        """Submit signed commitments; see `rounds.commit_updates`."""

    def decide(
        self,
        round_number: int,
        decision: SubmittedDecision,
        certificates: tuple[SubmittedCertificate, SubmittedCertificate],
    ) -> object:
        """Record a round; see `rounds.decide`."""

    def abandon_round(self, round_number: int) -> object:
        """End a round after its deadline; see `rounds.abandon_round`."""

    def report_equivocation(self, report: EquivocationReport) -> object:
        """Ban a client that signed two conflicting statements; see `rounds.report_equivocation`."""
