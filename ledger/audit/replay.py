"""The whole chain once more, through the executable specification (steps 1 to 4, 8 and 10).

Every transaction that left an event is decoded from its call data and applied to the state of
`rounds.py`, which recovers every signature and recomputes head and seeds; the events it gives must
be the recorded logs, byte by byte. Where a transaction does not do what the log says, the
contradiction is written down and the replay goes on: with what the call data give, or, if they are
refused or cannot be read, with what the log says, so that later rounds can still be checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ledger.audit.adoption import adopted, mismatches
from ledger.audit.bans import find_ban
from ledger.audit.calls import apply
from ledger.audit.codes import Count, Fact, Need, Step
from ledger.audit.comparison import compare_events, contradict_refusal
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import hexed, text_of
from ledger.audit.transactions import TransactionReader
from ledger.chain.contract.calls import RegisterCall, ReportCall
from ledger.chain.contract.events import decode_log
from ledger.protocol.closing import MinedCommitment
from ledger.protocol.errors import ChainError, Refusal
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    RoundAbandoned,
    RoundDecided,
    Stage,
    UpdatesCommitted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.findings import AuditLog
    from ledger.audit.transactions import RecordedTransaction
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import Log
    from ledger.protocol.ledger_state import Event, LedgerState

_SIGNED = (UpdatesCommitted, ClientBanned, RoundDecided)
"""Events that rest on signatures; the others follow from what is public."""


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it.

    Attributes:
        round: t.
        known: whether seed, committee and model are those that the round opened with; false
            where the record of the round before is missing.
        before: the contract's state just before the round ended, bans included.
        commitments: all that the chain holds of the round, in its order.
        ended_block: number of the block in which it ended.
        decided: the decision, if there is one.
        transaction: hash of the transaction that ended the round.
    """

    round: int
    known: bool
    before: LedgerState
    commitments: tuple[MinedCommitment, ...]
    ended_block: int
    decided: RoundDecided | None
    transaction: bytes


@dataclass
class _OpenRound:
    """What is collected until the round ends."""

    known: bool = True
    commitments: list[MinedCommitment] = field(default_factory=list)


class Replay:
    """The contract's transactions in order.

    Attributes:
        state: the contract's state after all that has been replayed.
        believes_registry: whether clients were registered by a transaction that cannot be read.
    """

    def __init__(self, ledger: CommitteeLedger, state: LedgerState, log: AuditLog) -> None:
        self.state = state
        self.believes_registry = False
        self._transactions = TransactionReader(ledger, log)
        self._log = log
        self._open = _OpenRound()

    def ended_rounds(self, to_block: int) -> Iterator[ReplayedRound]:
        """Yield every round that ended, in the chain's order.

        Args:
            to_block: last block that is read.

        Yields:
            A round; `state` is then the next one's.
        """
        for transaction in self._transactions.read(to_block):
            before, call, block = self.state, transaction.call, transaction.block
            if call is None or block is None or not self._can_apply(transaction):
                yield from self._adopt(transaction)
                continue
            try:
                self.state, events = apply(before, call, block)
            except Refusal as refusal:
                contradict_refusal(transaction, refusal, before.round or None, self._log)
                yield from self._adopt(transaction)
                continue
            compare_events(events, transaction, before.round or None, self._log)
            self._log.counts[Count.TRANSACTIONS] += 1
            for event in events:
                yield from self._follow(before, event, transaction, is_checked=True)

    def open_commitments(self) -> int:
        """Return how many commitments the round holds that has not ended."""
        return len(self._open.commitments)

    def _can_apply(self, transaction: RecordedTransaction) -> bool:
        """Say whether the state is one that the specification can start from."""
        if isinstance(transaction.call, RegisterCall) and self.believes_registry:
            return False
        return self.state.stage is not Stage.OPEN or _is_plausible(self.state)

    def _adopt(self, transaction: RecordedTransaction) -> Iterator[ReplayedRound]:
        """Go on with what the logs say, since their transaction says nothing."""
        for log in transaction.logs:
            event = self._event_of(log)
            if event is None:
                continue
            before = self.state
            if transaction.call is None and isinstance(event, _SIGNED):
                needed = Missing(Need.CALL_DATA, before.round, detail=hexed(transaction.hash))
                self._log.lack(needed, Step.CERTIFICATES)
            for odd in mismatches(before, event, transaction.block) if transaction.block else ():
                subject = f"{type(event).__name__}.{odd.name}"
                values = text_of(odd.recorded), text_of(odd.true)
                at = before.round or None
                contradiction = Contradiction(Fact.EVENT_UNFOUNDED, at, (), subject, *values)
                self._log.contradict(odd.step, contradiction)
            after = adopted(before, event, log.block_number)
            self.state = after.state
            self.believes_registry |= isinstance(event, ClientsRegistered)
            self._open.known = self._open.known and after.fits
            yield from self._follow(before, event, transaction, is_checked=False)

    def _event_of(self, log: Log) -> Event | None:
        try:
            return decode_log(log).event
        except ChainError as error:
            contradiction = Contradiction(
                Fact.EVENT_MALFORMED, self.state.round or None, true=str(error)
            )
            self._log.contradict(Step.HEAD, contradiction)
            return None

    def _follow(
        self,
        before: LedgerState,
        event: Event,
        transaction: RecordedTransaction,
        *,
        is_checked: bool,
    ) -> Iterator[ReplayedRound]:
        """Collect what belongs to the open round, and yield it when it ends."""
        match event:
            case UpdatesCommitted(_, clients, commitments):
                self._open.commitments += [
                    MinedCommitment(transaction.block_number, client, commitment)
                    for client, commitment in zip(clients, commitments, strict=True)
                    if client < before.deployment.clients
                ]
                self._log.counts[Count.COMMITMENTS] += len(clients)
            case ClientBanned():
                call = transaction.call
                proof = call if is_checked and isinstance(call, ReportCall) else None
                find_ban(before, event, proof, transaction.hash, self._log)
            case RoundDecided() | RoundAbandoned():
                if is_checked and isinstance(event, RoundDecided):
                    votes = 2 + sum(signers.bit_count() for signers in event.signers)
                    self._log.counts[Count.VOTES] += votes
                yield self._ended(before, event, transaction)
            case _:
                pass

    def _ended(
        self,
        before: LedgerState,
        event: RoundDecided | RoundAbandoned,
        transaction: RecordedTransaction,
    ) -> ReplayedRound:
        ended = self._open
        # What a round opens with is known if this event is the one before it and was believed.
        self._open = _OpenRound(known=_is_plausible(self.state))
        return ReplayedRound(
            round=event.round,
            known=ended.known and event.round == before.round,
            before=replace(before, round=event.round),
            commitments=tuple(ended.commitments),
            ended_block=transaction.block_number,
            decided=event if isinstance(event, RoundDecided) else None,
            transaction=transaction.hash,
        )


def _is_plausible(state: LedgerState) -> bool:
    """Say whether the committee of the state can serve; an adopted one may be anything."""
    committee = state.committee
    return (
        len(set(committee)) == len(committee) == state.deployment.members
        and max(committee) < state.deployment.clients
    )
