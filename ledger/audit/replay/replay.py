"""Replay of the whole chain through the executable specification.

Every transaction that left an event is decoded from its call data and applied to the state of
`rounds.py`, which recovers every signature and recomputes head and seeds; the events it gives must
be the recorded logs, byte by byte. Where a transaction does not do what the log says, the replay
says so and goes on: with what the call data give, or, if they are refused or cannot be read, with
what the log says, so that later rounds can still be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

from ledger.audit.checks.all_checks import (
    EVENT_KIND,
    REFUSED_CALL,
    malformed_event,
    step_of_event,
    step_of_refusal,
    wrong_field,
)
from ledger.audit.checks.certificates import CALL_DATA_UNAVAILABLE
from ledger.audit.checks.common import LOGS_INCOMPLETE
from ledger.audit.checks.completeness import EVENT_COUNT
from ledger.audit.checks.deployment_parameters import DEPLOYMENT_UNLOGGED
from ledger.audit.observations import (
    Disagreement,
    Observation,
    ReplayedEvent,
    ReplayedRound,
    Unavailable,
)
from ledger.audit.replay.adoption import adopted, mismatches
from ledger.audit.replay.transactions import RecordedTransaction, TransactionReader
from ledger.chain.contract import abi
from ledger.chain.contract.codec import (
    AbandonCall,
    Call,
    CommitCall,
    DecideCall,
    RegisterCall,
    decode_log,
    encode_log,
    require_possible_event,
)
from ledger.chain.contract.event_log import storage_difference
from ledger.chain.contract.ledger import CommitteeLedger, LedgerSnapshot
from ledger.chain.ports import ChainUnreachableError, IncompleteLogsError, Log
from ledger.protocol import rounds
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError, ProtocolRefusal
from ledger.protocol.fold import LedgerView, mined_commitments
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Event,
    LedgerDeployed,
    LedgerStage,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    Step,
    UpdatesCommitted,
)
from ledger.protocol.types import Digest

_ONLY_IN_CALL_DATA = (UpdatesCommitted, ClientBanned, RoundDecided, RoundAbandoned)
"""Events that rest on what only their call data say; of the others the rest is public."""

ReplayItem: TypeAlias = "Observation | ReplayedRound"


@dataclass
class _OpenRound:
    """The commitments of the open round so far."""

    known: bool = True
    commitments: list[MinedCommitment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """The state after the transactions up to some block.

    Attributes:
        believes_registry: whether clients were registered by a transaction that cannot be read.
        view: the state that the recorded events of a node alone lead to.
        is_from_calls: whether call data gave all of `state`, and no event had to be believed.
        is_confirmed: whether the newest recorded head follows from all that is recorded before.
    """

    state: LedgerState
    believes_registry: bool
    view: LedgerView
    is_from_calls: bool
    is_confirmed: bool

    def difference(self, snapshot: LedgerSnapshot) -> str | None:
        """Return the sign that a log is missing; None where it is certain that none is."""
        if self.is_from_calls and LedgerSnapshot.of(self.state) == snapshot:
            return None
        return storage_difference(self.view, snapshot)


class Replay:
    """The contract's transactions in order.

    Attributes:
        state: the contract's state after all that has been replayed.
        believes_registry: whether clients were registered by a transaction that cannot be read.
        is_confirmed: whether the newest recorded head follows from all that is recorded before it,
            in events or in call data. If it ends a round, no log before it is missing; the head of
            a ban names no commitment of the open round.
    """

    def __init__(self, ledger: CommitteeLedger, state: LedgerState) -> None:
        self.state = state
        self._view = LedgerView.at_deployment(state.deployment)
        self.is_confirmed = True
        self._is_from_calls = True
        self.believes_registry = False
        self.applied = 0
        self._ledger = ledger
        self._is_of_node = ledger.chain.node is not None
        self._awaits_deployment = state.stage is LedgerStage.REGISTERING
        self._transactions = TransactionReader(ledger)
        self._open = _OpenRound()

    def observe(self, to_block: int) -> Iterator[ReplayItem]:
        """Yield the effects of the transactions, every round when it ends, and inconsistencies.

        Yields:
            An observation, or a round that ended; `state` is then the next one's.
        """
        for transaction in self._transactions.read(to_block):
            if isinstance(transaction, Disagreement | Unavailable):
                yield transaction
                continue
            yield from transaction.inconsistencies
            yield from self._replay(transaction)

    def reached(self) -> ReplayPosition:
        """Return the state after all that has been replayed."""
        return ReplayPosition(
            self.state, self.believes_registry, self._view, self._is_from_calls, self.is_confirmed
        )

    def open_commitments(self) -> int:
        """Return the number of commitments of the round that has not ended."""
        return len(self._open.commitments)

    def _replay(self, transaction: RecordedTransaction) -> Iterator[ReplayItem]:
        heads = self._fold(transaction)
        if self._awaits_deployment:
            self._awaits_deployment = False
            if _is_deployment(transaction):
                yield from self._deployed(transaction)
                return
            yield self._without_deployment(transaction.block_number)
        before, block = self.state, transaction.block
        call = transaction.call or _evident_call(transaction)
        if call is None or block is None or not self._can_apply(call):
            yield from self._adopt(transaction, call)
            return
        at = before.round or None
        try:
            self.state, events = _apply(before, call, block)
        except ProtocolRefusal as refusal:
            yield Disagreement(
                transaction.block_number,
                REFUSED_CALL,
                to_hex(transaction.hash),
                true=refusal.fact,
                round=at,
                step=step_of_refusal(type(refusal)),
                rests_on_all_logs=True,
            )
            yield from self._adopt(transaction, call)
            return
        self.applied += 1
        if self._is_from_calls and self.state.head in heads:
            self.is_confirmed = True
        if len(transaction.logs) < len(events) and (
            difference := self._receipt_difference(transaction)
        ):
            yield Unavailable(transaction.block_number, LOGS_INCOMPLETE, at, difference)
        else:
            differences = list(_compare_events(events, transaction, at))
            if differences and isinstance(call, CommitCall):
                # An omitted log may hold commitments that this transaction repeats. The call data
                # then lead to the contract's state, though a log is missing.
                self._is_from_calls = False
            yield from differences
        for event in events:
            yield from self._follow(before, event, transaction, call)

    def _deployed(self, transaction: RecordedTransaction) -> Iterator[ReplayItem]:
        """Compare what the constructor has logged; its other traces are code and `deployment()`."""
        event = LedgerDeployed(self.state.domain.salt)
        self.applied += 1
        yield from _compare_events((event,), transaction, None)
        yield from self._follow(self.state, event, transaction, None)

    def _without_deployment(self, block_number: int) -> Observation:
        if not self._is_of_node:
            return Disagreement(block_number, DEPLOYMENT_UNLOGGED)
        fact = f"no log up to block {block_number} is of the deployment"
        error = IncompleteLogsError(self._ledger.chain.node, fact)
        return Unavailable(block_number, LOGS_INCOMPLETE, None, str(error))

    def _fold(self, transaction: RecordedTransaction) -> set[Digest]:
        """Fold the recorded events of a node; return the heads that they name."""
        heads: set[Digest] = set()
        for log in transaction.logs if self._is_of_node else ():
            try:
                recorded = decode_log(log)
                require_possible_event(recorded, self.state.deployment)
            except ChainError:
                continue  # it is said to be malformed where it is compared
            self._view = self._view.after(recorded.event, recorded.block_number)
            event = recorded.event
            if isinstance(event, RoundDecided | RoundAbandoned | ClientBanned):
                heads.add(event.head)
                self.is_confirmed = event.head == self._view.head
        return heads

    def _receipt_difference(self, transaction: RecordedTransaction) -> str:
        """Return how a transaction's logs differ from its receipt; empty if they agree."""
        ledger = self._ledger
        if not self._is_of_node:
            return ""
        fact = f"transaction {to_hex(transaction.hash)} has {len(transaction.logs)} logs"
        try:
            receipt = ledger.chain.receipt(transaction.hash)
        except ChainUnreachableError:
            raise
        except ChainError as error:
            return str(IncompleteLogsError(ledger.chain.node, f"{fact}, its receipt: {error}"))
        logs = () if receipt is None else receipt.logs
        count = sum(log.address == ledger.address for log in logs)
        if receipt is not None and count == len(transaction.logs):
            return ""
        return str(IncompleteLogsError(ledger.chain.node, f"{fact}, and its receipt {count}"))

    def _can_apply(self, call: Call) -> bool:
        if isinstance(call, RegisterCall) and self.believes_registry:
            return False
        return self.state.stage is not LedgerStage.OPEN or _is_plausible(self.state)

    def _adopt(self, transaction: RecordedTransaction, call: Call | None) -> Iterator[ReplayItem]:
        """Go on with the events in the logs, since their transaction cannot be applied."""
        self._is_from_calls = False
        number = transaction.block_number
        for log in transaction.logs:
            at = self.state.round or None
            try:
                event = decode_log(log).event
            except ChainError as error:
                yield malformed_event(number, at, None, str(error))
                continue
            before = self.state
            if isinstance(event, LedgerDeployed):
                yield malformed_event(
                    number, at, LedgerDeployed, "the contract was there before it"
                )
                continue
            if call is None and isinstance(event, _ONLY_IN_CALL_DATA):
                why = f" ({transaction.unserved})" if transaction.unserved else ""
                detail = f"{to_hex(transaction.hash)}{why}"
                yield Unavailable(number, CALL_DATA_UNAVAILABLE, before.round or None, detail)
            block = transaction.block
            for name, *values in mismatches(before, event, block) if block else ():
                yield wrong_field(number, at, type(event), name, values, is_made=False)
            self.state, fits = adopted(before, event, log.block_number)
            self.believes_registry |= isinstance(event, ClientsRegistered)
            self._open.known = self._open.known and fits
            yield from self._follow(before, event, transaction, None)

    def _follow(
        self, before: LedgerState, event: Event, transaction: RecordedTransaction, call: Call | None
    ) -> Iterator[ReplayItem]:
        """Yield an event, and the round that it ends; collect the commitments of the open one."""
        yield ReplayedEvent(transaction.block_number, before, event, call, transaction.hash)
        match event:
            case UpdatesCommitted():
                mined = mined_commitments(event, transaction.block_number)
                clients = before.deployment.clients
                self._open.commitments += [
                    commitment for commitment in mined if commitment.client < clients
                ]
            case RoundDecided() | RoundAbandoned():
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
            block=transaction.block_number,
            decided=event if isinstance(event, RoundDecided) else None,
            transaction=transaction.hash,
        )


def _is_deployment(transaction: RecordedTransaction) -> bool:
    """Say whether a transaction logs the deployment first, in whatever words."""
    topics = transaction.logs[0].topics
    return transaction.call is None and bool(topics) and topics[0] == abi.topic("LedgerDeployed")


def _evident_call(transaction: RecordedTransaction) -> Call | None:
    """Return the call behind an abandonment: it is not signed, so its event determines it."""
    if len(transaction.logs) != 1:
        return None
    try:
        event = decode_log(transaction.logs[0]).event
    except ChainError:
        return None
    return AbandonCall(event.round) if isinstance(event, RoundAbandoned) else None


def _is_plausible(state: LedgerState) -> bool:
    """Say whether the committee of the state can serve; an adopted one may be anything."""
    committee = state.committee
    return (
        len(set(committee)) == len(committee) == state.deployment.members
        and max(committee) < state.deployment.clients
    )


def _apply(state: LedgerState, call: Call, block: BlockContext) -> Step:
    """Return the state after a call, and its events; a refusal raises."""
    match call:
        case RegisterCall(words, rest):
            return rounds.register_clients(state, words, rest, block)
        case CommitCall(number, signed):
            return rounds.commit_updates(state, number, signed, block)
        case DecideCall(number, decision, certificates):
            return rounds.decide(state, number, decision, certificates, block)
        case AbandonCall(number):
            return rounds.abandon_round(state, number, block)
        case _:
            return rounds.report_equivocation(state, call.report, block)


def _compare_events(
    events: tuple[Event, ...], transaction: RecordedTransaction, at: int | None
) -> Iterator[Observation]:
    """Yield the differences between the events that a transaction makes and its logs."""
    number, recorded = transaction.block_number, len(transaction.logs)
    if len(events) != recorded:
        made = f"{len(events)}: {', '.join(type(event).__name__ for event in events)}"
        values = to_hex(transaction.hash), str(recorded), made
        yield Disagreement(number, EVENT_COUNT, *values, at, rests_on_all_logs=True)
    for event, log in zip(events, transaction.logs, strict=False):
        if encode_log(event) != (log.topics, log.data):
            yield from _differences(event, log, at)


def _differences(event: Event, log: Log, at: int | None) -> Iterator[Observation]:
    number, kind = log.block_number, type(event)
    try:
        logged = decode_log(log).event
    except ChainError as error:
        yield malformed_event(number, at, kind, str(error))
        return
    if type(logged) is not kind:
        names = type(logged).__name__, kind.__name__
        yield Disagreement(number, EVENT_KIND, "", *names, at, step_of_event(kind), True)
        return
    wrong = [f.name for f in fields(kind) if getattr(event, f.name) != getattr(logged, f.name)]
    if not wrong:
        yield malformed_event(number, at, kind, "its bytes are others")
    for name in wrong:
        values = getattr(logged, name), getattr(event, name)
        yield wrong_field(number, at, kind, name, values, is_made=True)
