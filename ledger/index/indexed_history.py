"""A deployment's history from the index, as of the block up to which it is indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import checksum
from ledger.chain.ports import NotServedError
from ledger.history.chain_history import ChainHistory
from ledger.history.documents import Documents, read_documents
from ledger.history.pages import matches, window_of
from ledger.history.participation import ParticipationCounts, Tally, participation_of
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.history.queries import EMPTY_PAGE
from ledger.history.status import AskedRole
from ledger.index.codes import DocumentState, StorageComparison
from ledger.index.index_errors import IndexDamagedError, IndexStaleError, NotIndexedError
from ledger.index.reading import (
    counts_of,
    end_time,
    events_of,
    lines_between,
    lines_of,
    missing_documents,
    occurrences_of,
    participation_rows,
)
from ledger.index.row_documents import document_states, unpack_participation
from ledger.index.search import matching_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from ledger.chain.contract.calls import DecideCall
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block
    from ledger.history.digests import Occurrence
    from ledger.history.participation import Participation
    from ledger.history.queries import RoundPage, RoundQuery
    from ledger.history.round import HistoryRound
    from ledger.index.reading import ReadingCache
    from ledger.index.row_documents import RoundEvents
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader

MAX_ROUNDS_CHECKED = 64
"""Rounds whose missing documents are looked for before counts are answered; the newest of them."""


class IndexedHistory:
    """The history of one deployment, from the index; see `HistorySource`.

    It lives as long as the reading that it came from. The calls behind decisions and bans are only
    on the chain, and are read there.

    Attributes:
        path: its name: the chain's, and the contract's address.
        blobs: where the documents are.
    """

    def __init__(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        cache: ReadingCache,
        blobs: BlobReader,
        ledger: CommitteeLedger | None = None,
    ) -> None:
        chain = ChainPath(int(row["chain_id"]), row["genesis"])
        self.path = DeploymentPath(chain, checksum(row["address"]))
        self.fixed: Deployment = cache.fixed(row)
        self.blobs = blobs
        self._connection = connection
        self._row = row
        self._cache = cache
        self._ledger = ledger
        self._times: dict[int, int] = {}

    @property
    def block(self) -> int:
        """The block up to which it is indexed."""
        return int(self._row["block"])

    def stands_at(self, block: Block) -> bool:
        """Say whether it is of this very block, and agreed with the contract's own storage.

        Args:
            block: of the chain; after a fork another block has its number.
        """
        if block.number != self.block or self._row["compared"] != StorageComparison.EQUAL:
            return False
        return bool(self._row["hash"] == block.hash)

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""
        return int(self._row["newest"])

    def round(self, number: int) -> HistoryRound | None:
        """Return a round with all that came in, None if it has not opened."""
        if not 1 <= number <= self.newest():
            return None
        events = events_of(self._connection, self._row["id"], number)
        self._remember_time(events)
        return events.round(self.fixed, self.registered())

    def rounds(self, first: int, last: int) -> list[HistoryRound]:
        """Return the rounds of a range by their starts and ends, ascending.

        Raises:
            NotServedError: not all of them have opened.
        """
        if last > self.newest():
            raise NotServedError(f"round {last} has not opened; the newest is {self.newest()}")
        return self._of_lines(lines_between(self._connection, self._row["id"], first, last))

    def some(self, numbers: Iterable[int]) -> list[HistoryRound]:
        """Return some rounds by their starts and ends, ascending.

        Args:
            numbers: of rounds that have opened, ascending.
        """
        return self._of_lines(lines_of(self._connection, self._row["id"], numbers))

    def page(self, query: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds: the same as `ledger.history.pages.read_page`, cursor included.

        Raises:
            CursorError: the cursor is not one of this walk's.
            IndexDamagedError: a row that was found contradicts its documents, or has none.
        """
        window = window_of(self, query, limit, cursor)
        if window is None:
            return EMPTY_PAGE
        if query.matches_all:
            rounds = self.rounds(window.first, window.last)
        else:
            # The record says which scores were refused, and may have come or gone since.
            is_of_record = query.role is AskedRole.REFUSED and query.client is not None
            most = None if is_of_record else limit
            rows = matching_rounds(self._connection, self._row["id"], query, window, most)
            rounds = self._of_lines(rows)
            if is_of_record:
                rounds = [round_ for round_ in rounds if matches(self, query, round_)]
            else:
                self._require_matching(query, rounds)
        ordered = rounds[::-1] if window.is_descending else rounds
        return window.page(ordered[:limit], limit)

    def parts(self, client: ClientId, rounds: Sequence[HistoryRound]) -> list[Participation]:
        """Return a client's participation in some rounds, in their order.

        Raises:
            ValueError: it took no part in one of them.
        """
        if not rounds:
            return []
        numbers = [round_.round for round_ in rounds]
        bounds = min(numbers), max(numbers)
        rows = participation_rows(self._connection, self._row["id"], client, *bounds)
        parts = []
        for line in rounds:
            row, part = rows.get(line.round), None
            if row is not None and self._has_same_documents(line, row):
                part = unpack_participation(row["document"], client, line.round)
            part = part or self._read_participation(line.round, client)
            if part is None:
                raise ValueError(f"client {client} took no part in round {line.round}")
            parts.append(part)
        return parts

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return the occurrences of a digest: the deployment's first, then ascending by round."""
        self._require_same_missing()
        return occurrences_of(self._connection, self._row["id"], digest, first, limit)

    def documents(self, round_: HistoryRound) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, round_)

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""
        return self._cache.registry(self._connection, self._row)

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""
        self._require_same_missing()
        counts = counts_of(self._connection, self._row["id"])
        # A client that is not registered yet has done nothing.
        counts += [ParticipationCounts() for _ in range(self.fixed.clients - len(counts))]
        return Tally(int(self._row["ended"]), int(self._row["records_missing"]), tuple(counts))

    def time_of(self, block_number: int) -> int:
        """Return the time of a block that ended a round, in Unix seconds.

        Raises:
            NotIndexedError: it ended none.
        """
        if block_number not in self._times:
            time = end_time(self._connection, self._row["id"], block_number)
            if time is None:
                raise NotIndexedError(f"the index holds no round that block {block_number} ended")
            self._times[block_number] = time
        return self._times[block_number]

    def decision_call(self, round_: HistoryRound) -> DecideCall | None:
        """Return the call data that decided a round, from the chain."""
        return self._chain_history().decision_call(round_)

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that a ban rests on, from the chain."""
        return self._chain_history().ban_report(recorded)

    def _of_lines(self, lines: Iterable[RoundEvents]) -> list[HistoryRound]:
        registry = self.registered()
        rounds = []
        for events in lines:
            self._remember_time(events)
            rounds.append(events.line(self.fixed, registry))
        return rounds

    def _require_matching(self, query: RoundQuery, rounds: Iterable[HistoryRound]) -> None:
        """Accept rounds whose documents match, too; they are stored apart from the columns.

        Raises:
            IndexDamagedError: one does not.
        """
        for round_ in rounds:
            if not matches(self, query, round_):
                raise IndexDamagedError(
                    f"the index finds round {round_.round} by a row that contradicts its events: "
                    "run cmfl index rebuild"
                )

    def _require_same_missing(self) -> None:
        """Refuse counts and digests while a document is there that was missing when indexed.

        Raises:
            IndexStaleError: a document has come, and is not indexed yet.
        """
        if not self._row["waiting"]:
            return
        indexed = missing_documents(self._connection, self._row["id"], MAX_ROUNDS_CHECKED)
        for round_ in self.some(indexed):
            if document_states(self.documents(round_), is_decided=True) != indexed[round_.round]:
                raise IndexStaleError(f"a document of round {round_.round} has come meanwhile")

    def _has_same_documents(self, round_: HistoryRound, row: Mapping[str, Any]) -> bool:
        """Say whether the documents of a round are there, as they were when it was indexed."""
        decided = round_.decided
        if decided is None:
            return True
        if DocumentState.MISSING in {row["record"], row["incidents"]}:
            return False
        digests = [decided.record]
        if row["incidents"] == DocumentState.READ:
            digests.append(decided.incidents)
        return all(map(self.blobs.has, digests))

    def _read_participation(self, number: int, client: ClientId) -> Participation | None:
        round_ = self.round(number)
        return None if round_ is None else participation_of(round_, self.documents(round_), client)

    def _chain_history(self) -> ChainHistory:
        if self._ledger is None:
            raise NotIndexedError("the index holds no signatures, and no chain was given to ask")
        bounds = (self.block, int(self._row["final"]))
        return ChainHistory(self._ledger, self.fixed, self.blobs, *bounds)

    def _remember_time(self, events: RoundEvents) -> None:
        if events.ended is not None and events.ended_time is not None:
            self._times[events.ended.block_number] = events.ended_time
