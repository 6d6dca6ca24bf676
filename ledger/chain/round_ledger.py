"""What a run's ledger is to those who take part in it or read it, wherever it is kept.

Two stand behind these ports: the contract on a chain (`contract.committee_ledger.LedgerWriter`)
and the same transitions in the memory of one process (`memory.ledger.MemoryLedger`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ledger.chain.ports import IncompleteLogsError
from ledger.protocol.ledger_state import LedgerStage, RoundAbandoned, RoundDecided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.contract.committee_ledger import LedgerSnapshot, RoundStart
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block
    from ledger.protocol.closing import MinedCommitment
    from ledger.protocol.ledger_state import (
        ClientBanned,
        Deployment,
        EquivocationReport,
        SubmittedCertificate,
        SubmittedDecision,
    )
    from ledger.protocol.types import RegisteredClient, SignedCommitment


class RoundHistory(Protocol):
    """What a run's ledger tells.

    Every method may raise a ChainError where a chain is behind it.
    """

    @property
    def is_recorded(self) -> bool:
        """Whether a chain holds it, so that others can read and audit it."""

    @property
    def from_block(self) -> int:
        """The block in which it was deployed; nothing in it is older."""

    @property
    def node(self) -> str | None:
        """The address of the node that tells it, without credentials; None where none does."""

    def deployment(self) -> Deployment:
        """Return what was fixed at deployment."""

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return where it stands after a block, None for the newest."""

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, without bans."""

    def bans(self, to_block: int | None = None) -> tuple[ClientBanned, ...]:
        """Return every ban up to a block, oldest first."""

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return how a round began, None if it has not up to a block."""

    def commitments(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[MinedCommitment, ...]:
        """Return the commitments that a round took up to a block, oldest first."""

    def round_events(self, round_number: int, to_block: int | None = None) -> list[RecordedEvent]:
        """Return what was recorded of a round up to a block, oldest first."""

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return all that was recorded in these blocks, both included, oldest first."""

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return so many of the last or the first decisions and abandonments up to a block."""


MAX_ROUNDS_BETWEEN_CALLS = 4
"""Rounds that may end between two questions to a node."""


def ends_after(ledger: RoundHistory, round_number: int) -> list[RoundDecided | RoundAbandoned]:
    """Return how every round after one ended, up to the last that has, oldest first.

    Args:
        ledger: the run's ledger.
        round_number: t; 0 for all rounds.

    Raises:
        IncompleteLogsError: a round has ended by the ledger's own word, and its end is not told.
        ChainError: the chain behind it is unreachable.
    """
    state = ledger.state()
    last = state.round if state.stage is LedgerStage.FINISHED else state.round - 1
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
    """A run's ledger that transactions can be sent to.

    A transaction takes one block, also where it is refused: the Refusal is then raised.
    """

    def newest_block(self) -> Block:
        """Return the newest block."""

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        """Return the number of the newest final block: so deep, or by the chain's own word."""

    def block(self, number: int) -> Block:
        """Return one block, 0 for the first."""

    def mine(self, blocks: int) -> None:
        """Let so many empty blocks pass, at least 0."""

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Say whether these commitments would be taken now, without sending them."""

    def commit_updates(self, round_number: int, signed: Sequence[SignedCommitment]) -> object:
        """Carry signed commitments; see `rounds.commit_updates`."""

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
        """Ban a client with two of its statements; see `rounds.report_equivocation`."""
