"""The whole chain once more, through the executable specification (steps 1 to 4, 8 and 10).

Every transaction that left an event is decoded from its call data and applied to the state of
`rounds.py`, which recovers every signature and recomputes head and seeds; the events it gives must
be the recorded logs, byte by byte. Where a transaction does not do what the log says, the
contradiction is written down and the replay goes on: with what the call data give, or, if they are
refused, with what the log says, so that later rounds can still be checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from ledger.audit import report
from ledger.audit.adoption import adopted, true_end
from ledger.audit.calls import ReportCall, apply, decode_call, encoded_event
from ledger.chain.events import decode_log
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol import errors, ledger_state
from ledger.protocol.errors import ChainError, Refusal
from ledger.protocol.types import NO_DIGEST, Beacon, Digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.calls import Call
    from ledger.audit.report import Notebook
    from ledger.chain.committee_ledger import CommitteeLedger
    from ledger.chain.ports import Block, Log
    from ledger.protocol.types import ClientId

BLOCKS_AT_ONCE = 512

_REFUSED_BY_STEP: dict[int, tuple[type[Refusal], ...]] = {
    report.DEPLOYMENT: (
        errors.NotRegisteringError,
        errors.RegistryMismatchError,
        errors.MalformedClientError,
        errors.ClientsNotAscendingError,
        errors.RegistryEndError,
    ),
    report.SAMPLING: (errors.WrongCommitteeError, errors.MemberRankedError),
    report.RANKING: (
        errors.RankingTooLongError,
        errors.RankingTooShortError,
        errors.RankingNotSortedError,
        errors.DistanceNotFiniteError,
        errors.RepeatedClientError,
        errors.ThresholdUnusedError,
        errors.ThresholdNotFiniteError,
        errors.WrongAggregationSetError,
        errors.WrongNextCommitteeError,
    ),
    report.COMPLETENESS: (
        errors.NoRoundOpenError,
        errors.WrongRoundError,
        errors.NoCommitmentError,
        errors.NoCommitmentsError,
        errors.RepeatedCommitmentError,
        errors.DeadlineNotReachedError,
    ),
}
_STEP_OF_REFUSAL = {leaf: step for step, leaves in _REFUSED_BY_STEP.items() for leaf in leaves}

_STEP_OF_FIELD = {
    "head": report.HEAD,
    "next_seed": report.HEAD,
    "seed": report.HEAD,
    "accepted": report.RANKING,
    "next_committee": report.RANKING,
}
_STEP_OF_EVENT: dict[type[ledger_state.Event], int] = {
    ledger_state.ClientsRegistered: report.DEPLOYMENT,
    ledger_state.LedgerOpened: report.DEPLOYMENT,
}


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it.

    Attributes:
        round: t.
        known: whether seed, committee and model are those that the round opened with; false
            where the record of the round before is missing.
        before: the contract's state just before the round ended.
        payloads: digest of each client that committed, in the chain's order.
        decided: the decision, if there is one.
        transaction: hash of the transaction that ended the round.
        reports: call data of the equivocations reported during the round, with their hashes.
    """

    round: int
    known: bool
    before: ledger_state.LedgerState
    payloads: dict[ClientId, Digest]
    decided: ledger_state.RoundDecided | None
    transaction: bytes
    reports: tuple[tuple[ReportCall, bytes], ...]


@dataclass
class _OpenRound:
    """What is collected until the round ends."""

    known: bool = True
    payloads: dict[ClientId, Digest] = field(default_factory=dict)
    reports: list[tuple[ReportCall, bytes]] = field(default_factory=list)


class Replay:
    """The contract's transactions in order.

    Attributes:
        state: the contract's state after all that has been replayed.
    """

    def __init__(
        self, ledger: CommitteeLedger, state: ledger_state.LedgerState, notes: Notebook
    ) -> None:
        self.state = state
        self._ledger = ledger
        self._notes = notes
        self._open = _OpenRound()
        self._block: Block | None = None

    def ended_rounds(self, to_block: int) -> Iterator[ReplayedRound]:
        """Yield every round that ended, in the chain's order.

        Args:
            to_block: last block that is read.

        Yields:
            A round; `state` is then the next one's.
        """
        for logs in self._transactions(to_block):
            ended = self._replay(logs)
            if ended is not None:
                yield ended

    def _transactions(self, to_block: int) -> Iterator[list[Log]]:
        """Yield the contract's logs, transaction by transaction.

        Raises:
            ChainUnreachableError: the node went away.
        """
        ledger = self._ledger
        for first in range(ledger.from_block, to_block + 1, BLOCKS_AT_ONCE):
            last = min(first + BLOCKS_AT_ONCE - 1, to_block)
            try:
                logs = ledger.chain.logs(ledger.address, [], first, last)
            except ChainUnreachableError:
                raise
            except ChainError as error:
                self._contradict(report.HEAD, f"blocks {first} to {last} are whole", str(error))
                continue
            self._check_order(logs)
            for _, group in groupby(logs, key=lambda log: log.transaction_hash):
                yield list(group)

    def _check_order(self, logs: list[Log]) -> None:
        places = [(log.block_number, log.log_index) for log in logs]
        for one, other in pairwise(places):
            if one >= other:
                self._contradict(
                    report.HEAD,
                    f"log {other[1]} of block {other[0]} follows log {one[1]} of block {one[0]}",
                    "a chain has them in ascending order",
                )
        if any(log.address != self._ledger.address for log in logs):
            self._contradict(
                report.HEAD,
                "a log of another contract is one of this",
                "it is not of this contract",
            )

    def _replay(self, logs: list[Log]) -> ReplayedRound | None:
        """Apply one transaction and return the round that it ended."""
        before, call = self.state, self._call(logs[0])
        events: tuple[ledger_state.Event, ...] | None = None
        block = self._context(logs)
        if call is not None and block is not None and self._can_go_on():
            try:
                self.state, events = apply(before, call, block)
            except Refusal as refusal:
                self._refused(call, refusal)
        if events is None:
            events = self._adopt(logs, block)
        else:
            self._compare(events, logs)
            self._notes.counts["transactions"] += 1
        return self._ended(before, call, events, logs[0].transaction_hash)

    def _can_go_on(self) -> bool:
        """Say whether the state is one that the specification can start from."""
        return self.state.stage is not ledger_state.Stage.OPEN or _is_plausible(self.state)

    def _call(self, log: Log) -> Call | None:
        """Return what the log's transaction calls, None if it cannot be read.

        Raises:
            ChainUnreachableError: the node went away.
        """
        try:
            return decode_call(self._input(log))
        except ChainUnreachableError:
            raise
        except ChainError as error:
            self._contradict(
                report.CERTIFICATES,
                f"transaction {report.shown(log.transaction_hash)} in block {log.block_number} "
                f"made an event",
                str(error),
            )
            return None

    def _input(self, log: Log) -> bytes:
        """Return the call data of a log's transaction.

        Raises:
            ChainError: the chain has none, or another one.
        """
        transaction = self._ledger.chain.transaction(log.transaction_hash)
        if transaction.hash != log.transaction_hash:
            raise ChainError(f"the chain answers with {report.shown(transaction.hash)}")
        if transaction.to != self._ledger.address:
            raise ChainError("its transaction is sent to another address")
        if transaction.block_number != log.block_number:
            raise ChainError(f"its transaction is in block {transaction.block_number}")
        return transaction.input

    def _context(self, logs: list[Log]) -> ledger_state.BlockContext | None:
        """Return the block of a transaction, checked against its neighbour and the logs.

        Raises:
            ChainUnreachableError: the node went away.
        """
        number = logs[0].block_number
        last = self._block
        try:
            block = self._ledger.chain.block(number)
        except ChainUnreachableError:
            raise
        except ChainError as error:
            self._contradict(report.HEAD, f"block {number} holds an event", str(error))
            return None
        self._block = block
        wrong = [log for log in logs if (log.block_number, log.block_hash) != (number, block.hash)]
        if block.number != number or wrong:
            self._contradict(
                report.HEAD,
                f"a log of block {number} is in the block with hash "
                f"{report.shown((wrong or logs)[0].block_hash)}",
                f"block {number} is block {block.number} with hash {report.shown(block.hash)}",
            )
        follows = last is not None and last.number == number - 1
        if follows and last is not None and last.hash != block.parent_hash:
            self._contradict(
                report.HEAD,
                f"block {number} follows {report.shown(block.parent_hash)}",
                f"block {number - 1} is {report.shown(last.hash)}",
            )
        return ledger_state.BlockContext(number, Digest(block.parent_hash))

    def _refused(self, call: Call, refusal: Refusal) -> None:
        what = type(call).__name__.removesuffix("Call").lower()
        step = _STEP_OF_REFUSAL.get(type(refusal), report.CERTIFICATES)
        self._contradict(
            step,
            f"the contract took the transaction ({what})",
            f"it refuses it: {refusal.fact}",
        )

    def _compare(self, events: tuple[ledger_state.Event, ...], logs: list[Log]) -> None:
        """Compare what the contract must have logged with the logs."""
        if len(events) != len(logs):
            made = ", ".join(type(event).__name__ for event in events)
            self._contradict(
                report.COMPLETENESS,
                f"transaction {report.shown(logs[0].transaction_hash)} made {len(logs)} events",
                f"it made {len(events)}: {made}",
            )
        for event, log in zip(events, logs, strict=False):
            if encoded_event(event) != (log.topics, log.data):
                self._differs(event, log)

    def _differs(self, event: ledger_state.Event, log: Log) -> None:
        kind = type(event)
        step = _STEP_OF_EVENT.get(kind, report.CERTIFICATES)
        try:
            recorded = decode_log(log).event
        except ChainError as error:
            self._contradict(step, f"a log is the event {kind.__name__}", str(error))
            return
        if type(recorded) is not kind:
            wrong = type(recorded).__name__
            self._contradict(step, f"the event is {wrong}", f"its transaction made {kind.__name__}")
            return
        names = [
            f.name for f in fields(kind) if getattr(event, f.name) != getattr(recorded, f.name)
        ]
        if not names:
            self._contradict(step, f"the log of {kind.__name__} is well-formed", "it is not")
        for name in names:
            own = _STEP_OF_FIELD.get(name, step)
            if (kind, name) == (ledger_state.RoundAbandoned, "next_committee"):
                own = report.SAMPLING
            self._contradict(
                own,
                f"{name} of {kind.__name__} is {_text(getattr(recorded, name))}",
                f"its transaction gives {_text(getattr(event, name))}",
            )

    def _adopt(
        self, logs: list[Log], block: ledger_state.BlockContext | None
    ) -> tuple[ledger_state.Event, ...]:
        """Go on with what the logs say, since their transaction says nothing."""
        events = []
        for log in logs:
            try:
                event = decode_log(log).event
            except ChainError as error:
                self._contradict(report.HEAD, "a log of the contract is an event", str(error))
                continue
            if block is not None:
                self._check_end(event, block)
            number = block.number if block is not None else log.block_number
            self.state, known = adopted(self.state, event, number)
            self._open.known = self._open.known and known
            events.append(event)
        return tuple(events)

    def _check_end(self, event: ledger_state.Event, block: ledger_state.BlockContext) -> None:
        """Recompute head and seed from an event whose transaction says nothing."""
        has_beacon = self.state.deployment.beacon is Beacon.BLOCK
        found = true_end(self.state, event, block.parent_hash if has_beacon else NO_DIGEST)
        if found is None:
            return
        recorded = (getattr(event, "head", None), getattr(event, "next_seed", found[1]))
        if recorded != found:
            self._contradict(
                report.HEAD,
                f"head and seed after the event are {_text(recorded)}",
                f"they follow as {_text(found)}",
            )

    def _ended(
        self,
        before: ledger_state.LedgerState,
        call: Call | None,
        events: tuple[ledger_state.Event, ...],
        transaction: bytes,
    ) -> ReplayedRound | None:
        current, ended = self._open, None
        for event in events:
            match event:
                case ledger_state.UpdatesCommitted(number, clients, payloads):
                    current.known = current.known and number == before.round
                    current.payloads |= zip(clients, payloads, strict=False)
                    self._notes.counts["commitments"] += len(clients)
                case ledger_state.ClientBanned() if isinstance(call, ReportCall):
                    current.reports.append((call, transaction))
                case ledger_state.RoundDecided() | ledger_state.RoundAbandoned():
                    ended = event
                case _:
                    pass
        if ended is None:
            return None
        # What a round opens with is known if this event is the one before it and was believed.
        self._open = _OpenRound(known=_is_plausible(self.state))
        if isinstance(ended, ledger_state.RoundDecided):
            self._count_signatures(ended)
        return ReplayedRound(
            round=ended.round,
            known=current.known and ended.round == before.round,
            before=replace(before, round=ended.round),
            payloads=current.payloads,
            decided=ended if isinstance(ended, ledger_state.RoundDecided) else None,
            transaction=transaction,
            reports=tuple(current.reports),
        )

    def _count_signatures(self, event: ledger_state.RoundDecided) -> None:
        replies = sum(signers.bit_count() for signers in event.signers)
        self._notes.counts["votes"] += replies + 2

    def _contradict(self, step: int, recorded: str, true: str) -> None:
        number = self.state.round or None
        self._notes.contradict(step, recorded, true, number)


def _is_plausible(state: ledger_state.LedgerState) -> bool:
    """Say whether the committee of the state can serve; an adopted one may be anything."""
    committee = state.committee
    return (
        len(set(committee)) == len(committee) == state.deployment.members
        and max(committee) < state.deployment.clients
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return report.shown(value)
    if isinstance(value, tuple) and len(value) > 16:
        return f"({', '.join(map(_text, value[:16]))}, ... {len(value)} in all)"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return str(value)
