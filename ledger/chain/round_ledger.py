"""A run's ledger: what every adapter answers, and what follows from its events.

Two adapters exist: the contract on a chain (`contract.ledger.LedgerWriter`) and the same
transitions in memory (`memory.MemoryLedger`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ledger.chain.ports import Block, IncompleteLogsError
from ledger.protocol import encoding, ledger_state
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided, RoundStart
from ledger.protocol.types import NO_DIGEST, Digest, SignedCommitment

EventKind: TypeAlias = type[ledger_state.Event]

ENDS: tuple[EventKind, ...] = (RoundDecided, RoundAbandoned)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event, and its position on the chain."""

    event: ledger_state.Event
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


@dataclass(frozen=True, slots=True)
class EventQuery:
    """A request for events of some kinds; None is any round, the newest block, and no limit."""

    kinds: Sequence[EventKind]
    round: int | None = None
    to_block: int | None = None
    limit: int | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The contract's storage after one block; `committee` is a digest."""

    stage: ledger_state.LedgerStage
    round: int
    opened_block: int
    seed: Digest
    committee: Digest
    model: Digest
    head: Digest
    registered: int
    registry_rest: Digest
    commitments: Digest

    @staticmethod
    def of(state: ledger_state.LedgerView, registry_rest: Digest) -> LedgerSnapshot:
        """Return the state that events lead to; none gives the digest of the clients to come."""
        registering = state.stage is ledger_state.LedgerStage.REGISTERING
        return LedgerSnapshot(
            stage=state.stage,
            round=state.round,
            opened_block=state.opened_block,
            seed=state.seed,
            committee=NO_DIGEST if registering else encoding.set_digest(state.committee),
            model=state.model,
            head=state.head,
            registered=len(state.registry),
            registry_rest=registry_rest,
            commitments=state.commitments,
        )


class RoundHistory(Protocol):
    """Read access to a run's ledger; every method may raise a ChainError."""

    is_recorded: bool
    """Whether it is on a chain, where others can read and audit it."""
    from_block: int
    """Number of the deploying block; no event is older."""

    @property
    def node(self) -> str | None:
        """Address of the node that answers, without credentials; None for a file or memory."""

    def deployment(self) -> ledger_state.Deployment: ...

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return its state after a block, None for the newest."""

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return every event in a range of blocks, both ends included, oldest first."""

    def recorded(self, query: EventQuery) -> list[RecordedEvent]: ...

    def registry(self) -> tuple[encoding.RegisteredClient, ...]:
        """Return the clients registered so far, without bans."""
        words: list[int] = []
        for recorded in self.recorded(EventQuery([ledger_state.ClientsRegistered])):
            assert isinstance(recorded.event, ledger_state.ClientsRegistered), "the kind asked for"
            if recorded.event.first != len(words):
                raise IncompleteLogsError(
                    self.node,
                    f"after client {len(words) - 1} the logs continue with client "
                    f"{recorded.event.first}",
                )
            words += recorded.event.words
        return tuple(encoding.registered_client(word) for word in words)

    def bans(self) -> tuple[ClientBanned, ...]:
        """Return every ban, oldest first."""
        events = [recorded.event for recorded in self.recorded(EventQuery([ClientBanned]))]
        return tuple(event for event in events if isinstance(event, ClientBanned))

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return the start of a round as of a block; None if it is not open."""
        if round_number == 1:
            openings = self.recorded(EventQuery([ledger_state.LedgerOpened], None, to_block))
        else:
            openings = self.recorded(EventQuery(ENDS, round_number - 1, to_block))
        return RoundStart.of(openings[0].event, openings[0].block_number) if openings else None

    def commitments(self, round_number: int) -> tuple[ledger_state.MinedCommitment, ...]:
        """Return the commitments of a round, oldest first."""
        return tuple(
            mined
            for recorded in self.recorded(EventQuery([ledger_state.UpdatesCommitted], round_number))
            for mined in ledger_state.mined_commitments(recorded.event, recorded.block_number)
        )

    def round_events(self, round_number: int) -> list[RecordedEvent]:
        """Return every event of a round, oldest first."""
        kinds = [ledger_state.UpdatesCommitted, RoundDecided, RoundAbandoned, ClientBanned]
        return self.recorded(EventQuery(kinds, round_number))

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return the last or the first outcomes of rounds up to a block, at most `limit`."""
        return self.recorded(EventQuery(ENDS, None, to_block, limit, descending))


def last_ended(state: LedgerSnapshot | ledger_state.LedgerView) -> int:
    """Return the number of the newest ended round, 0 before the first end."""
    if state.stage is ledger_state.LedgerStage.FINISHED:
        return state.round
    return max(0, state.round - 1)


def ends_after(ledger: RoundHistory, round_number: int) -> list[RoundDecided | RoundAbandoned]:
    """Return the outcomes of all ended rounds after one (0 for all), oldest first."""
    last = last_ended(ledger.state())
    ends: dict[int, RoundDecided | RoundAbandoned] = {}
    if last > round_number:
        # Up to four more rounds may end between two requests to a node.
        for recorded in ledger.outcomes(last - round_number + 4):
            if isinstance(recorded.event, RoundDecided | RoundAbandoned):
                ends[recorded.event.round] = recorded.event
    missing = next((n for n in range(round_number + 1, last + 1) if n not in ends), None)
    if missing is not None:
        fact = f"round {missing} of {last} that ended has no end in the logs"
        raise IncompleteLogsError(ledger.node, fact)
    return [ends[number] for number in range(round_number + 1, last + 1)]


class RoundLedger(RoundHistory, Protocol):
    """Write access by transactions of `protocol.rounds`: one block each, also if refused."""

    def newest_block(self) -> Block: ...

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        """Return the number of the newest final block; see `finality.final_number`."""

    def block(self, number: int) -> Block: ...

    def mine(self, blocks: int) -> None:
        """Let a number of empty blocks pass."""

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether these commitments would be accepted now, without sending them."""

    def commit_updates(self, round_number: int, signed: Sequence[SignedCommitment]) -> object: ...

    def decide(
        self,
        round_number: int,
        decision: ledger_state.SubmittedDecision,
        certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate],
    ) -> object: ...

    def abandon_round(self, round_number: int) -> object: ...

    def report_equivocation(self, report: ledger_state.EquivocationReport) -> object: ...
