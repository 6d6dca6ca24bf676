"""Replay of a run's transactions by the specification, with what follows an unreadable one.

Every transaction that left an event is decoded from its call data and applied to the state of
`rounds.py`, which recovers every signature and recomputes head and seeds. The events that follow
must be the recorded logs, byte by byte; the replay yields each difference. It goes on with what the
call data give, or, if they are refused or cannot be read, with the event in the log. Head, seed and
drawn committees are recomputed from such an event. So the rounds after it are checked against their
own record, and one fault is not reported for all of them.

Two statements of a chain must agree: a log's place, its block's hash, its transaction. Signatures
are in call data only. They cannot be checked where the chain does not serve a transaction, or
where it was not sent to the ledger (an account with code, EIP-7702, may call it from within).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from typing import TypeAlias

from ledger.audit.checks import chain as facts
from ledger.audit.checks.rounds import (
    CALL_DATA_UNAVAILABLE,
    EVENT_COUNT,
    TRANSACTION_DIFFERS,
    check_signatures,
)
from ledger.audit.evidence import ReplayedEvent, ReplayedRound
from ledger.audit.report import (
    AuditStep,
    CheckResult,
    Contradiction,
    contradicted,
    not_served,
    results_of,
)
from ledger.chain import ports
from ledger.chain.contract import abi, codec
from ledger.chain.contract.codec import Call, decode_log
from ledger.chain.contract.event_log import storage_difference
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.encoding import RegisteredClient, to_hex
from ledger.protocol.errors import ChainError, ProtocolRefusal
from ledger.protocol.inputs import drawn_committee, primary_seat
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Event,
    HeadEvent,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
    LedgerState,
    LedgerView,
    MinedCommitment,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
    mined_commitments,
)
from ledger.protocol.types import NO_DIGEST, Address, Beacon, ClientId, Digest, Phase


def adopted(state: LedgerState, event: Event, block_number: int) -> tuple[LedgerState, bool]:
    """Return the state that an event claims, and whether it is of the round that is open."""
    match event:
        case LedgerDeployed():
            return state, True
        case ClientsRegistered(_, words):
            left = state.deployment.clients - len(state.registry)
            return state.after(replace(event, words=words[:left]), block_number), True
        case LedgerOpened():
            state = _padded(state).after(event, block_number)
            state = replace(state, stage=LedgerStage.OPEN, round=1, registry_rest=NO_DIGEST)
            return replace(state, committee=_known(state, event.committee)), True
        case UpdatesCommitted(number, clients, commitments):
            pairs = zip(clients, commitments, strict=True)
            known = [pair for pair in pairs if pair[0] < state.deployment.clients]
            clients, commitments = tuple(c for c, _ in known), tuple(digest for _, digest in known)
            event = replace(event, clients=clients, commitments=commitments)
            return state.after(event, block_number), number == state.round
        case ClientBanned(number, _, head):
            after = state.after(event, block_number)
            return replace(after, head=head), number == state.round
        case _:
            after = replace(_padded(state), round=event.round).after(event, block_number)
            after = replace(after, committee=_known(after, event.next_committee), head=event.head)
            return after, event.round == state.round


def mismatches(
    state: LedgerState, event: Event, block: BlockContext
) -> Iterator[tuple[str, object, object]]:
    """Yield fields of an event that do not follow: name, what is recorded, and what is true."""
    for name, true in _expected(state, event, block).items():
        recorded = getattr(event, name)
        if recorded != true:
            yield name, recorded, true
    if isinstance(event, LedgerOpened):
        words = [encoding.registry_word(client) for client in state.registry]
        registered, _ = ledger_state.registry_batches(words)
        if registered != state.deployment.registry:
            yield "registry", registered, state.deployment.registry


def _expected(state: LedgerState, event: Event, block: BlockContext) -> dict[str, object]:
    """Return the fields of an event that follow from the state before it, and from the others."""
    sizes, seed = state.deployment, state.seed
    beacon = block.parent_hash if sizes.beacon is Beacon.BLOCK else NO_DIGEST
    match event:
        case ClientsRegistered():
            known = len(state.registry)
            return {"first": known, "words": event.words[: sizes.clients - known]}
        case LedgerOpened():
            seed = encoding.first_seed(sizes.config, beacon)
            drawn = drawn_committee(seed, sizes.clients, sizes.members, ())
            return {"config": sizes.config, "seed": seed, "committee": drawn, "model": sizes.model}
        case UpdatesCommitted():
            return {"round": state.round}
        case ClientBanned():
            client = ClientId(min(event.client, sizes.clients - 1))
            head = state.head_after(replace(event, client=client))
            return {"round": state.round, "client": client, "head": head}
        case RoundDecided():
            seed = encoding.next_seed(seed, event.reveal, beacon)
            expected = {"round": state.round, "next_seed": seed, "head": state.head_after(event)}
            if seats := state.committee:
                views = zip(Phase, event.views, strict=True)
                expected["primaries"] = tuple(
                    seats[primary_seat(state.seed, phase, view, len(seats))]
                    for phase, view in views
                )
            return expected
        case RoundAbandoned():
            seed = encoding.seed_after_abandoned(seed, beacon)
            banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
            drawn = drawn_committee(seed, sizes.clients, sizes.members, banned)
            head = state.head_after(replace(event, next_committee=drawn))
            drawn_fields = {"next_seed": seed, "next_committee": drawn, "head": head}
            return {"round": state.round, **drawn_fields}
        case _:
            return {}


def _known(state: LedgerState, clients: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    return clients if all(client < state.deployment.clients for client in clients) else ()


def _padded(state: LedgerState) -> LedgerState:
    missing = state.deployment.clients - len(state.registry)
    nobody = RegisteredClient(Address(bytes(20)), 1)
    return replace(state, registry=state.registry + (nobody,) * missing)


LOG_BATCH_BLOCKS = 512


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A transaction that left events of the contract."""

    hash: bytes
    block_number: int
    logs: tuple[ports.Log, ...]
    call: Call | None  # what it asked of the contract; None if that cannot be read
    unserved: str  # why the chain does not serve the transaction; empty if it does
    block: BlockContext | None  # what it saw of its block; None if that cannot be read


class ReadingEndedError(Exception):
    """The chain does not serve the basis of everything that follows."""

    def __init__(self, *results: CheckResult) -> None:
        self.results = results
        super().__init__(str(results))


@dataclass
class TransactionReader:
    """Reads a contract's transactions, oldest first, and yields what disagrees about them."""

    _ledger: CommitteeLedger
    _block: ports.Block | None = None  # of the transaction before

    def read(self, to_block: int) -> Iterator[RecordedTransaction | CheckResult]:
        """Yield every transaction that left an event, and what is wrong among their logs."""
        ledger = self._ledger
        for first in range(ledger.from_block, to_block + 1, LOG_BATCH_BLOCKS):
            logs = self._logs(first, min(first + LOG_BATCH_BLOCKS - 1, to_block))
            for one, other in pairwise(logs):
                if (one.block_number, one.log_index) >= (other.block_number, other.log_index):
                    named = (f"log {x.log_index} of block {x.block_number}" for x in (one, other))
                    yield contradicted(other.block_number, facts.LOG_ORDER, *named)
            for log in logs:
                if log.address != ledger.address:
                    yield contradicted(log.block_number, facts.LOG_ADDRESS, true=log.address)
            for transaction_hash, group in groupby(logs, key=lambda log: log.transaction_hash):
                own, found = tuple(group), list[CheckResult]()
                call, unserved = self._call(own[0], found)
                block = self._context(own, found)
                yield from found
                place = transaction_hash, own[0].block_number
                yield RecordedTransaction(*place, own, call, unserved, block)

    def _logs(self, first: int, last: int) -> list[ports.Log]:
        try:
            return self._ledger.chain.logs(ports.LogQuery(self._ledger.address, [], first, last))
        except ports.ChainUnreachableError:
            raise
        except ports.ChainDamagedError as error:
            subject = f"{first} to {last}"
            wrong = contradicted(first, facts.LOGS_UNREADABLE, subject, true=str(error))
            raise ReadingEndedError(wrong, *not_served(first, facts.CHAIN_UNAVAILABLE)) from error
        except ChainError as error:
            missing = not_served(first, facts.CHAIN_UNAVAILABLE, detail=str(error))
            raise ReadingEndedError(*missing) from error

    def _call(self, log: ports.Log, found: list[CheckResult]) -> tuple[Call | None, str]:
        """Return what the log's transaction asks of the contract, or why it is not available."""
        number, other = log.block_number, ""
        try:
            transaction = self._ledger.chain.transaction(log.transaction_hash)
        except ports.ChainUnreachableError:
            raise
        except ports.ChainDamagedError as error:
            subject = to_hex(log.transaction_hash)
            found.append(contradicted(number, TRANSACTION_DIFFERS, subject, true=str(error)))
            return None, ""
        except ChainError as error:  # nodes may drop the index of old transactions
            return None, str(error)
        if transaction.hash != log.transaction_hash:
            other = f"the chain returns {to_hex(transaction.hash)}"
        elif transaction.block_number != number:
            other = f"it is in block {transaction.block_number}"
        if other:
            subject = to_hex(log.transaction_hash)
            found.append(contradicted(number, TRANSACTION_DIFFERS, subject, true=other))
        if other or transaction.to != self._ledger.address:
            return None, ""
        try:
            return codec.decode_call(transaction.input), ""
        except ChainError:
            return None, ""

    def _context(
        self, logs: tuple[ports.Log, ...], found: list[CheckResult]
    ) -> BlockContext | None:
        number, last = logs[0].block_number, self._block
        subject, block = str(number), read_block(self._ledger.chain, number)
        if not isinstance(block, ports.Block):
            found += block
            return None
        self._block = block
        wrong = [log for log in logs if (log.block_number, log.block_hash) != (number, block.hash)]
        if block.number != number or wrong:
            recorded = to_hex((wrong or logs)[0].block_hash)
            true = f"block {block.number}, {to_hex(block.hash)}"
            found.append(contradicted(number, facts.LOG_BLOCK, subject, recorded, true))
        if last is not None and last.number == number - 1 and last.hash != block.parent_hash:
            recorded, true = to_hex(block.parent_hash), to_hex(last.hash)
            found.append(contradicted(number, facts.PARENT_BLOCK, subject, recorded, true))
        return BlockContext(number, Digest(block.parent_hash))


def read_block(chain: ports.ChainReader, number: int) -> ports.Block | tuple[CheckResult, ...]:
    """Return a block, or what follows if it cannot be read."""
    try:
        return chain.block(number)
    except ports.ChainUnreachableError:
        raise
    except ports.ChainDamagedError as error:
        return (contradicted(number, facts.BLOCK_UNREADABLE, str(number), true=str(error)),)
    except ChainError as error:
        return not_served(number, facts.BLOCK_UNAVAILABLE, detail=f"{number}: {error}")


ReplayItem: TypeAlias = CheckResult | ReplayedEvent | ReplayedRound


@dataclass(slots=True)
class ReplayPosition:
    """The state after the transactions up to some block."""

    state: LedgerState
    view: LedgerView  # the state that the recorded events of a node alone lead to
    believes_registry: bool = False  # a registration could not be read
    is_from_calls: bool = True  # call data gave all of `state`: no event had to be believed
    # Whether the newest recorded head follows from all that is recorded before it, in events or in
    # call data. If it ends a round, no log before it is missing; the head of a ban names no
    # commitment of the open round.
    is_confirmed: bool = True

    def difference(self, snapshot: LedgerSnapshot) -> str | None:
        """Return the sign that a log is missing; None where it is certain that none is."""
        own = LedgerSnapshot.of(self.state, self.state.registry_rest)
        if self.is_from_calls and own == snapshot:
            return None
        return storage_difference(self.view, snapshot)


class Replay:
    """The contract's transactions in order; `position` is after all that has been replayed."""

    def __init__(self, ledger: CommitteeLedger, state: LedgerState) -> None:
        self.position = ReplayPosition(state, LedgerView.at_deployment(state.deployment))
        self.applied = 0
        self._ledger = ledger
        self._is_of_node = ledger.chain.node is not None
        self._awaits_deployment = state.stage is LedgerStage.REGISTERING
        self._transactions = TransactionReader(ledger)
        # The open round: whether its start is known, and its commitments so far.
        self._is_known = True
        self.commitments: list[MinedCommitment] = []

    def observe(self, to_block: int) -> Iterator[ReplayItem]:
        """Yield results, events, and each round that has ended; the position then is the next's."""
        for transaction in self._transactions.read(to_block):
            if isinstance(transaction, CheckResult):
                yield transaction
            else:
                yield from self._replay(transaction)

    def _replay(self, transaction: RecordedTransaction) -> Iterator[ReplayItem]:
        heads = self._fold(transaction)
        if self._awaits_deployment:
            self._awaits_deployment = False
            topics = transaction.logs[0].topics[:1]
            if transaction.call is None and topics == (abi.topic("LedgerDeployed"),):
                # The constructor's other traces are code and `deployment()`.
                deployed = LedgerDeployed(self.position.state.domain.salt)
                self.applied += 1
                yield from _compare_events((deployed,), transaction, None)
                yield from self._follow(self.position.state, deployed, transaction, None)
                return
            yield from self._without_deployment(transaction.block_number)
        before, block = self.position.state, transaction.block
        call = transaction.call or _evident_call(transaction)
        if call is None or block is None or not self._can_apply(call):
            yield from self._adopt(transaction, call)
            return
        at = before.round or None
        try:
            self.position.state, events = _apply(before, call, block)
        except ProtocolRefusal as refusal:
            subject, step = to_hex(transaction.hash), facts.step_of_refusal(refusal.code)
            wrong = Contradiction(facts.REFUSED_CALL, at, subject=subject, true=refusal.code)
            yield CheckResult(step, wrong, transaction.block_number, rests_on_all_logs=True)
            yield from self._adopt(transaction, call)
            return
        self.applied += 1
        if self.position.is_from_calls and self.position.state.head in heads:
            self.position.is_confirmed = True
        is_short = len(transaction.logs) < len(events)
        if is_short and (difference := self._receipt_difference(transaction)):
            yield from not_served(transaction.block_number, facts.LOGS_INCOMPLETE, at, difference)
        else:
            differences = list(_compare_events(events, transaction, at))
            if differences and isinstance(call, codec.CommitCall):
                # An omitted log may hold commitments that this transaction repeats. The call data
                # then lead to the contract's state, though a log is missing.
                self.position.is_from_calls = False
            yield from differences
        for event in events:
            yield from self._follow(before, event, transaction, call)

    def _without_deployment(self, block_number: int) -> tuple[CheckResult, ...]:
        if not self._is_of_node:
            return (contradicted(block_number, facts.DEPLOYMENT_UNLOGGED),)
        fact = f"no log up to block {block_number} is of the deployment"
        error = ports.IncompleteLogsError(self._ledger.chain.node, fact)
        return not_served(block_number, facts.LOGS_INCOMPLETE, None, str(error))

    def _fold(self, transaction: RecordedTransaction) -> set[Digest]:
        """Fold the recorded events of a node; return the heads that they name."""
        heads: set[Digest] = set()
        for log in transaction.logs if self._is_of_node else ():
            try:
                recorded = decode_log(log)
                codec.require_possible_event(recorded, self.position.state.deployment)
            except ChainError:
                continue  # the comparison reports it as malformed
            self.position.view = self.position.view.after(recorded.event, recorded.block_number)
            if isinstance(recorded.event, HeadEvent):
                heads.add(recorded.event.head)
                self.position.is_confirmed = recorded.event.head == self.position.view.head
        return heads

    def _receipt_difference(self, transaction: RecordedTransaction) -> str:
        ledger = self._ledger
        if not self._is_of_node:
            return ""
        fact = f"transaction {to_hex(transaction.hash)} has {len(transaction.logs)} logs"
        try:
            receipt = ledger.chain.receipt(transaction.hash)
            logs = () if receipt is None else receipt.logs
            count = sum(log.address == ledger.address for log in logs)
            if receipt is not None and count == len(transaction.logs):
                return ""
            fact += f", and its receipt {count}"
        except ports.ChainUnreachableError:
            raise
        except ChainError as error:
            fact += f", its receipt: {error}"
        return str(ports.IncompleteLogsError(ledger.chain.node, fact))

    def _can_apply(self, call: Call) -> bool:
        state = self.position.state
        if isinstance(call, codec.RegisterCall) and self.position.believes_registry:
            return False
        return state.stage is not LedgerStage.OPEN or _is_plausible(state)

    def _adopt(self, transaction: RecordedTransaction, call: Call | None) -> Iterator[ReplayItem]:
        """Go on with the events in the logs, since their transaction cannot be applied."""
        self.position.is_from_calls = False
        number, block = transaction.block_number, transaction.block
        for log in transaction.logs:
            before = self.position.state
            at = before.round or None
            try:
                event = decode_log(log).event
            except ChainError as error:
                yield facts.malformed_event(number, at, None, str(error))
                continue
            if isinstance(event, LedgerDeployed):
                why = "the contract already existed"
                yield facts.malformed_event(number, at, LedgerDeployed, why)
                continue
            # Registration and opening rest on public values; all else on call data.
            if call is None and not isinstance(event, ClientsRegistered | LedgerOpened):
                why = f" ({transaction.unserved})" if transaction.unserved else ""
                detail = f"{to_hex(transaction.hash)}{why}"
                yield from not_served(number, CALL_DATA_UNAVAILABLE, at, detail)
            for name, *values in mismatches(before, event, block) if block else ():
                yield facts.wrong_field(number, at, type(event), name, values, is_made=False)
            self.position.state, fits = adopted(before, event, log.block_number)
            self.position.believes_registry |= isinstance(event, ClientsRegistered)
            self._is_known = self._is_known and fits
            yield from self._follow(before, event, transaction, None)

    def _follow(
        self, before: LedgerState, event: Event, transaction: RecordedTransaction, call: Call | None
    ) -> Iterator[ReplayItem]:
        """Yield an event, and the round that it ends; collect the commitments of the open one."""
        number = transaction.block_number
        replayed = ReplayedEvent(number, before, event, call, transaction.hash)
        yield replayed
        signatures = AuditStep.CERTIFICATES, check_signatures(replayed)
        yield from results_of(number, signatures, rests_on_all_logs=False)
        mined, clients = mined_commitments(event, number), before.deployment.clients
        self.commitments += [each for each in mined if each.client < clients]
        if isinstance(event, RoundDecided | RoundAbandoned):
            ended = ReplayedRound(
                round=event.round,
                known=self._is_known and event.round == before.round,
                before=replace(before, round=event.round),
                commitments=tuple(self.commitments),
                block=number,
                decided=event if isinstance(event, RoundDecided) else None,
                transaction=transaction.hash,
            )
            # The next round's start is known if this event is the one before it and was believed.
            self._is_known, self.commitments = _is_plausible(self.position.state), []
            yield ended


def _evident_call(transaction: RecordedTransaction) -> Call | None:
    """Return the call behind an abandonment: it is not signed, so its event determines it."""
    if len(transaction.logs) != 1:
        return None
    try:
        event = decode_log(transaction.logs[0]).event
    except ChainError:
        return None
    return codec.AbandonCall(event.round) if isinstance(event, RoundAbandoned) else None


def _is_plausible(state: LedgerState) -> bool:
    """Say whether the committee of the state can serve; an adopted one may be anything."""
    committee = state.committee
    return (
        len(set(committee)) == len(committee) == state.deployment.members
        and max(committee) < state.deployment.clients
    )


def _apply(state: LedgerState, call: Call, block: BlockContext) -> rounds.Step:
    match call:
        case codec.RegisterCall(words, rest):
            return rounds.register_clients(state, words, rest, block)
        case codec.CommitCall(number, signed):
            return rounds.commit_updates(state, number, signed, block)
        case codec.DecideCall(number, decision, certificates):
            return rounds.decide(state, number, decision, certificates, block)
        case codec.AbandonCall(number):
            return rounds.abandon_round(state, number, block)
        case _:
            return rounds.report_equivocation(state, call.report, block)


def _compare_events(
    events: tuple[Event, ...], transaction: RecordedTransaction, at: int | None
) -> Iterator[CheckResult]:
    number, recorded = transaction.block_number, len(transaction.logs)
    if len(events) != recorded:
        made = f"{len(events)}: {', '.join(type(event).__name__ for event in events)}"
        wrong = Contradiction(EVENT_COUNT, at, (), to_hex(transaction.hash), str(recorded), made)
        yield CheckResult(EVENT_COUNT.step, wrong, number, rests_on_all_logs=True)
    for event, log in zip(events, transaction.logs, strict=False):
        if codec.encode_log(event) != (log.topics, log.data):
            yield from _differences(event, log, at)


def _differences(event: Event, log: ports.Log, at: int | None) -> Iterator[CheckResult]:
    number, kind = log.block_number, type(event)
    try:
        logged = decode_log(log).event
    except ChainError as error:
        yield facts.malformed_event(number, at, kind, str(error))
        return
    if type(logged) is not kind:
        other = Contradiction(facts.EVENT_KIND, at, (), "", type(logged).__name__, kind.__name__)
        yield CheckResult(facts.step_of_event(kind), other, number, rests_on_all_logs=True)
        return
    wrong = [f.name for f in fields(kind) if getattr(event, f.name) != getattr(logged, f.name)]
    if not wrong:
        yield facts.malformed_event(number, at, kind, "its bytes differ")
    for name in wrong:
        values = getattr(logged, name), getattr(event, name)
        yield facts.wrong_field(number, at, kind, name, values, is_made=True)
