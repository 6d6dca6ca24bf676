"""The history of a deployment: its events folded once, extended with each new block.

A `DeploymentFold` reads every event of one contract once and is shared between threads. A
`FoldedHistory` is that fold as of one block: a fold that goes further never changes its answers.
A fold trusts its events: `EventLog` compares a node's logs with the contract's own storage.

A filter may match rarely, so a page examines `MAX_SCANNED` rounds at most, fewer with many clients,
and may be short of its limit while the list goes on. A limit counts entries: rounds, or the
evidence in them. A position is a round's number: rounds that open or end between two pages neither
repeat nor hide one.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.chain.contract.codec import DecideCall, ReportCall
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainReader, IncompleteLogsError, NotServedError
from ledger.chain.round_ledger import RecordedEvent
from ledger.history import fields
from ledger.history.fields import AskedRole, Order, RoundQuery
from ledger.history.round import (
    NO_DOCUMENTS,
    DocumentedRound,
    HistoryRound,
    Occurrence,
    ScoresOutcome,
    Tally,
    digests_of_deployment,
    digests_of_events,
    digests_of_round,
    has_begun,
    read_documents,
)
from ledger.protocol.encoding import RegisteredClient, registered_client, to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    Deployment,
    EquivocationReport,
    LedgerOpened,
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    UpdatesCommitted,
    registry_with_bans,
)
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import BlobReader

K = TypeVar("K", DecideCall, ReportCall)
T = TypeVar("T")


class UnknownRoundError(ConfigurationError):
    """A round that has not opened."""


class RoundRangeError(ConfigurationError):
    """A range that is not one of the run's rounds."""


class UnknownClientError(ConfigurationError):
    """A client that is not registered."""


MAX_SCANNED = 200


@dataclass(frozen=True, slots=True)
class HistoryPage(Generic[T]):
    """One page of a list, in the query's order; `next_cursor` is None after the last."""

    entries: list[T]
    scanned: int
    next_cursor: str | None


def page_width(query: RoundQuery, limit: int, clients: int) -> int:
    """Return how many rounds a page of `limit` entries examines, with K clients to draw from."""
    needs_draw = {AskedRole.ANY, AskedRole.TRAINED, AskedRole.DROPPED_OUT}
    # To find the sampled ones, one page draws the keys of 200,000 clients at most.
    drawn = max(1, min(MAX_SCANNED, 200_000 // clients))
    if query.listing == "evidence":
        return drawn * -(-limit // 100)  # as many as pages of a service, of 100 entries each
    if query.client is not None and query.role in needs_draw:
        return drawn
    return limit if query.matches_all else MAX_SCANNED


def _matches(history: FoldedHistory, query: RoundQuery, round_: HistoryRound) -> bool:
    decided, ended, blocks, times = round_.decided, round_.ended, query.blocks, query.times
    if query.status is not None and round_.status is not query.status:
        return False
    if query.view_min and (decided is None or max(decided.views) < query.view_min):
        return False
    if not (blocks.is_unbounded and times.is_unbounded):
        if ended is None or not blocks.contains(ended.block_number):
            return False
        if not times.is_unbounded and not times.contains(history.time_of(ended.block_number)):
            return False
    return query.client is None or has_role(history, round_, ClientId(query.client), query.role)


def has_role(
    history: FoldedHistory, round_: HistoryRound, client: ClientId, role: AskedRole
) -> bool:
    """Return whether a client was or did something in a round; "any" is trainer or member."""
    is_member = client in round_.committee
    if role is AskedRole.ANY:
        return is_member or client in round_.trainers
    decided = round_.decided
    accepted = () if decided is None else decided.accepted
    match role:
        case AskedRole.TRAINED | AskedRole.DROPPED_OUT:
            is_out = decided is not None and client not in round_.places
            is_asked = role is AskedRole.TRAINED or is_out
            return not is_member and is_asked and client in round_.trainers
        case AskedRole.ACCEPTED:
            return client in accepted
        case AskedRole.NOT_ACCEPTED:
            return client in round_.places and client not in accepted
        case AskedRole.MEMBER:
            return is_member
        case AskedRole.SERVED:
            return is_member and not round_.registry[client].is_banned_in(round_.round)
        case AskedRole.VOTED | AskedRole.REFUSED:
            if not is_member:
                return False
            known, needs_record = DocumentedRound(round_, NO_DOCUMENTS), role is AskedRole.REFUSED
            known = history.documented(round_) if needs_record else known
            part = known.member(round_.committee.index(client), client)
            return part.scores is ScoresOutcome.REFUSED if needs_record else bool(part.voted)


MAX_DOCUMENTED = 256  # rounds whose decoded documents stay in memory

_PREFIX = 8
"""Bytes of each digest that a round's table holds; a match is verified with the whole digest."""


@dataclass(slots=True)
class _Derived:
    """Values derived from the rounds of one fold; see `FoldedHistory`."""

    times: dict[int, int] = field(default_factory=dict)  # Unix seconds by block number
    # Blocks that ended a round, by number; no block ends two.
    ends: dict[int, fields.EndBlock] = field(default_factory=dict)
    # The most recently used rounds with all their documents, by number.
    documented: OrderedDict[int, DocumentedRound] = field(default_factory=OrderedDict)
    tally: Tally | None = None  # of the first `counted` rounds, in final blocks
    counted: int = 0
    without_record: list[int] = field(default_factory=list)  # counted, but not in `tally`
    # Prefixes of a round's digests, by number, where no further digest can appear.
    tables: dict[int, bytes] = field(default_factory=dict)
    # All of them, joined: prefixes, and the round of each; of fewer tables once there are more.
    joined: tuple[int, NDArray[np.uint64], NDArray[np.uint32]] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    documented_lock: threading.Lock = field(default_factory=threading.Lock)

    def rounds_with(self, prefix: bytes) -> list[int]:
        if self.joined is None or self.joined[0] != len(self.tables):
            sizes = [len(table) // _PREFIX for table in self.tables.values()]
            owners = np.repeat(np.fromiter(self.tables, np.uint32), sizes)
            prefixes = np.frombuffer(b"".join(self.tables.values()), np.uint64)
            self.joined = len(sizes), prefixes, owners
        _, prefixes, owners = self.joined
        found: list[int] = np.unique(owners[prefixes == np.frombuffer(prefix, np.uint64)]).tolist()
        return found

    def cut(self, rounds: int, block: int) -> _Derived:
        kept = _Derived()
        kept.times = {number: time for number, time in self.times.items() if number <= block}
        kept.ends = {number: end for number, end in self.ends.items() if number <= block}
        kept.tables = {n: table for n, table in self.tables.items() if n < rounds}
        if self.counted <= rounds:
            kept.tally, kept.counted = self.tally, self.counted
            kept.without_record = list(self.without_record)
        return kept


class DeploymentFold:
    """The rounds of one deployment up to a block; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._block: Block | None = None
        self._next = (0, 0)
        self._registration: list[RecordedEvent] = []
        self._registered: tuple[RegisteredClient, ...] = ()
        self._registry: tuple[RegisteredClient, ...] = ()
        self._bans: list[RecordedEvent] = []
        self._ended: list[HistoryRound] = []
        self._start: RoundStart | None = None
        self._events: list[RecordedEvent] = []
        self._derived = _Derived()
        self._newest: tuple[object, FoldedHistory] | None = None  # with what it was asked for

    def up_to(
        self,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        block: Block | None = None,
        final: int | None = None,
    ) -> FoldedHistory:
        """Return the history as of a block and a newest final one; None takes the chain's own."""
        chain, fixed = ledger.chain, ledger.fixed
        block = chain.head() if block is None else block
        final = chain.finalized() if final is None else final
        with self._lock:
            known = self._block
            if known and known != block and not _holds(chain, known.number, known.hash):
                self._cut(chain, fixed)
            if self._block is None or self._block.number < block.number:
                first = max(self._next[0], ledger.from_block)
                try:
                    for recorded in ledger.recorded_in(first, block.number):
                        if _position(recorded) >= self._next:
                            self._add(recorded, fixed, ledger.node)
                except BaseException:
                    self._clear()
                    raise
                self._block, self._next = block, (block.number + 1, 0)
            asked = ledger, fixed, blobs, block.number, final
            if self._newest is None or self._newest[0] != asked:
                self._newest = asked, self._history(*asked)
            return self._newest[1]

    def _add(self, recorded: RecordedEvent, fixed: Deployment, node: str | None) -> None:
        """Add the next event (IncompleteLogsError: it does not follow the one before)."""
        event = recorded.event
        match event:
            case ClientsRegistered(first, words):
                if first != (known := len(self._registered)):
                    fact = f"after client {known - 1} the logs continue with client {first}"
                    raise IncompleteLogsError(node, fact)
                self._registration.append(recorded)
                self._registered += tuple(map(registered_client, words))
                self._registry = self._registered
            case LedgerOpened():
                self._registration.append(recorded)
                self._begin(recorded, fixed)
            case ClientBanned():
                self._bans.append(recorded)
                self._registry = registry_with_bans(self._registry, [event])
                if self._start is not None:
                    self._events.append(recorded)
                elif self._ended and self._ended[-1].round == event.round:
                    # Clients can be banned after the last round.
                    last = self._ended[-1]
                    self._ended[-1] = replace(last, events=(*last.events, recorded))
            case UpdatesCommitted() | RoundDecided() | RoundAbandoned():
                start = self._start
                if start is None or event.round != start.round:
                    is_open = "no round" if start is None else f"round {start.round}"
                    held = f"block {recorded.block_number} holds an event of round {event.round}"
                    raise IncompleteLogsError(node, f"{held}, and {is_open} is open")
                self._events.append(recorded)
                if not isinstance(event, UpdatesCommitted):
                    now = self._registry, recorded, tuple(self._events)
                    self._ended.append(HistoryRound(start, fixed, *now))
                    self._begin(recorded, fixed)
            case _:
                pass

    def _begin(self, recorded: RecordedEvent, fixed: Deployment) -> None:
        start = RoundStart.of(recorded.event, recorded.block_number)
        self._start = start if start is not None and has_begun(start, fixed) else None
        self._events = []

    def _cut(self, chain: ChainReader, fixed: Deployment) -> None:
        """Go back to the newest round whose end a reorganised chain still holds."""
        ends = [_end(each) for each in self._ended]
        while ends and not _holds(chain, ends[-1].block_number, ends[-1].block_hash):
            ends.pop()
        if not ends:
            self._clear()
            return
        kept, end, last = len(ends), ends[-1], _position(ends[-1])
        del self._ended[kept:]
        self._ended[-1] = _until(self._ended[-1], last)
        self._bans = [each for each in self._bans if _position(each) <= last]
        self._registry = _with_bans(self._registered, self._bans)
        self._begin(end, fixed)
        self._block, self._newest, self._next = None, None, (last[0], last[1] + 1)
        self._derived = self._derived.cut(kept, last[0])

    def _history(
        self, ledger: CommitteeLedger, fixed: Deployment, blobs: BlobReader, block: int, final: int
    ) -> FoldedHistory:
        registry, count, last = self._registry, len(self._ended), (block, sys.maxsize)
        following: HistoryRound | None = None
        if self._block is not None and self._block.number > block:
            count = bisect_right(self._ended, block, key=lambda each: _end(each).block_number)
            bans = [each for each in self._bans if each.block_number <= block]
            words = [
                word
                for each in self._registration
                if isinstance(each.event, ClientsRegistered) and each.block_number <= block
                for word in each.event.words
            ]
            registry = _with_bans(map(registered_client, words), bans)
        rounds = self._ended[:count]
        if rounds:
            rounds[-1] = _until(rounds[-1], last)
        if count < len(self._ended):
            following = replace(self._ended[count], ended=None)
        elif self._start is not None:
            following = HistoryRound(self._start, fixed, registry, None, tuple(self._events))
        if following is not None and following.opening.opened_block <= block:
            rounds.append(replace(_until(following, last), registry=registry))
        facts = registry, self._registration, self._derived
        return FoldedHistory(ledger, fixed, blobs, block, final, rounds, count, *facts)


def _position(recorded: RecordedEvent) -> tuple[int, int]:
    return recorded.block_number, recorded.log_index


def _end(round_: HistoryRound) -> RecordedEvent:
    assert round_.ended is not None, "only ended rounds are listed"
    return round_.ended


def _until(round_: HistoryRound, last: tuple[int, int]) -> HistoryRound:
    """Return a round with its events up to a position; the same if it has no others."""
    if not round_.events or _position(round_.events[-1]) <= last:
        return round_
    return replace(round_, events=tuple(e for e in round_.events if _position(e) <= last))


def _with_bans(
    clients: Iterable[RegisteredClient], bans: Iterable[RecordedEvent]
) -> tuple[RegisteredClient, ...]:
    events = [each.event for each in bans if isinstance(each.event, ClientBanned)]
    return registry_with_bans(tuple(clients), events)


def _holds(chain: ChainReader, number: int, block_hash: bytes) -> bool:
    try:
        return chain.block(number).hash == block_hash
    except NotServedError:  # the chain is shorter now
        return False


@dataclass(frozen=True)
class FoldedHistory:
    """Rounds, clients and digests as of one block; every method may raise a ChainError."""

    ledger: CommitteeLedger
    fixed: Deployment
    blobs: BlobReader
    to_block: int  # number of the last block that is read
    final: int
    _rounds: list[HistoryRound]
    _count: int  # of them have ended
    _registry: tuple[RegisteredClient, ...]
    _registration: list[RecordedEvent]
    _derived: _Derived

    @staticmethod
    def of(ledger: CommitteeLedger, blobs: BlobReader) -> FoldedHistory:
        return DeploymentFold().up_to(ledger, blobs)

    @cached_property
    def path(self) -> fields.DeploymentPath:
        chain = self.ledger.chain
        return fields.DeploymentPath(
            fields.ChainPath(chain.chain_id, chain.genesis_hash), self.ledger.address
        )

    def newest(self) -> int:
        return len(self._rounds)

    def round(self, number: int) -> HistoryRound | None:
        return self._rounds[number - 1] if 1 <= number <= len(self._rounds) else None

    def opened(self, number: int) -> HistoryRound:
        round_ = self.round(number)
        if round_ is None:
            raise UnknownRoundError(f"round {number} has not opened; the newest is {self.newest()}")
        return round_

    def known(self, client: int, *, is_registered: bool = False) -> ClientId:
        clients = len(self.registered()) if is_registered else self.fixed.clients
        if client >= clients:
            raise UnknownClientError(f"client {client} is not registered; there are {clients}")
        return ClientId(client)

    def rounds(self, first: int, last: int) -> list[HistoryRound]:
        return self._rounds[first - 1 : last]

    def some(self, numbers: Iterable[int]) -> list[HistoryRound]:
        return [self._rounds[number - 1] for number in numbers]

    def page(self, query: RoundQuery, limit: int, cursor: str | None) -> HistoryPage[HistoryRound]:
        matches = partial(_matches, self, query)
        return self.page_of(query, limit, cursor, lambda each: [each] if matches(each) else [])

    def page_of(
        self, query: RoundQuery, limit: int, cursor: str | None, of: Callable[..., list[T]]
    ) -> HistoryPage[T]:
        """Return one page of the entries `of` each round of a window; `limit` is at least 1."""
        if query.client is not None:
            self.known(query.client)
        status = None if query.status is None else query.status.value
        subject = (query.listing, str(self.path), query.order.value, status, query.client)
        spans = (query.blocks.first, query.blocks.last, query.times.first, query.times.last)
        rounds, newest = query.rounds, self.newest()
        first = 1 if rounds.first is None else rounds.first
        last = newest if rounds.last is None else rounds.last
        if not rounds.is_unbounded and not 1 <= first <= last <= newest:
            rule = f"must be the first and the last of the {newest} rounds that have opened"
            raise RoundRangeError(f"rounds {first}..{last}: {rule}")
        among = (rounds.first, rounds.last, query.kind)
        narrowed = among if any(among) else ()
        scope = repr((*subject, query.role.value, query.view_min, *spans, *narrowed))
        is_descending = query.order is Order.NEWEST
        start, step, listed = (last, -1, 0) if is_descending else (first, 1, 0)
        if cursor is not None:
            start, listed = fields.decode_cursor(cursor, scope, last, first)
        if last == 0:
            return HistoryPage([], 0, None)
        width = page_width(query, limit, self.fixed.clients)
        end = max(first, start - width + 1) if is_descending else min(last, start + width - 1)
        entries: list[T] = []
        for number in range(start, end + step, step):
            own, room = of(self._rounds[number - 1]), listed + limit - len(entries)
            entries += own[listed:room]
            listed = room if len(own) > room else 0
            if listed or len(entries) == limit:
                end = number
                break
        following = end if listed else end + step  # the next page may go on in the last round
        is_over = not first <= following <= last
        next_cursor = None if is_over else fields.encode_cursor(following, scope, listed)
        return HistoryPage(entries, abs(end - start) + 1, next_cursor)

    def documented(self, round_: HistoryRound) -> DocumentedRound:
        """Return a round with its documents; a final round with all of them stays in memory."""
        derived, ended = self._derived, round_.ended
        if ended is None or ended.block_number > self.final:
            return self._read(round_)
        with derived.documented_lock:
            known = derived.documented.get(round_.round)
            if known is not None and known.round is round_:
                derived.documented.move_to_end(round_.round)
                return known
        known = self._read(round_)
        if known.is_whole:
            with derived.documented_lock:
                derived.documented[round_.round] = known
                if len(derived.documented) > MAX_DOCUMENTED:
                    derived.documented.popitem(last=False)
        return known

    def _read(self, round_: HistoryRound) -> DocumentedRound:
        return DocumentedRound(round_, read_documents(self.blobs, round_))

    def registered(self) -> tuple[RegisteredClient, ...]:
        return self._registry

    def tally(self) -> Tally:
        """Return every client's counts over the ended rounds; counts of final blocks are kept."""
        derived, empty = self._derived, Tally(0, 0, (Counter(),) * self.fixed.clients)
        with derived.lock:
            whole: list[DocumentedRound] = []
            lacking: list[DocumentedRound] = []
            for each in self._ended(range(derived.counted + 1, self.newest() + 1)):
                if each.round.ended is None or each.round.ended.block_number > self.final:
                    break
                (lacking if each.lacks_record else whole).append(each)
            derived.tally = tally = (derived.tally or empty).with_rounds(whole)
            derived.without_record += [each.round.round for each in lacking]
            derived.counted += len(whole) + len(lacking)
            counted, missing = derived.counted, [*derived.without_record]
            if counted > self._count:  # as of an older block: others have counted further
                tally, counted, missing = empty, 0, []
        return tally.with_rounds(self._ended([*missing, *range(counted + 1, self.newest() + 1)]))

    def _ended(self, numbers: Iterable[int]) -> Iterator[DocumentedRound]:
        """Yield the ended ones of some rounds with their documents; none stays in memory."""
        for round_ in self.some(numbers):
            if round_.ended is not None:
                yield self._read(round_)

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        places: set[Occurrence] = set()
        registration = [each for each in self._registration if each.block_number <= self.to_block]
        if registration:
            places.update(digests_of_deployment(self.fixed), digests_of_events(registration, 0))
        derived = self._derived
        with derived.lock:
            newest, tables = self.newest(), derived.tables
            found = [n for n in derived.rounds_with(digest[:_PREFIX]) if n <= newest]
            others = set(range(1, newest + 1)).difference(tables)
            for round_ in self.some(found + sorted(others)):
                documented = self.documented(round_)
                own = list(digests_of_round(documented))
                # Clients can still be banned in the newest round that has ended.
                if round_.round < self._count and documented.is_whole:
                    tables[round_.round] = b"".join(each.digest[:_PREFIX] for each in own)
                places.update(each for each in own if each.digest == digest)
        return sorted(each for each in places if each.digest == digest)[first : first + limit]

    def end_block(self, round_: HistoryRound) -> fields.EndBlock | None:
        ended, ends = round_.ended, self._derived.ends
        if ended is None:
            return None
        if (number := ended.block_number) not in ends:
            ends[number] = {
                "number": number,
                "hash": to_hex(ended.block_hash),
                "transaction": to_hex(ended.transaction_hash),
                **fields.time_of(self.time_of(number)),
            }
        return ends[number]

    def time_of(self, block_number: int) -> int:
        times = self._derived.times
        if block_number not in times:
            times[block_number] = self.ledger.chain.block(block_number).timestamp
        return times[block_number]

    def decision_call(self, round_: HistoryRound) -> DecideCall | None:
        if round_.ended is None:
            raise NotServedError(f"round {round_.round} is decided, but its log is missing")
        return self._call(round_.ended, DecideCall, "decide")

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        call = self._call(recorded, ReportCall, "report_equivocation")
        return None if call is None else call.report

    def _call(self, recorded: RecordedEvent, kind: type[K], name: str) -> K | None:
        call = self.ledger.call_of(recorded.transaction_hash)
        if call is not None and not isinstance(call, kind):
            transaction = recorded.transaction_hash.hex()
            raise NotServedError(f"transaction 0x{transaction} does not call {name}")
        return call
