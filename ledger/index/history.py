"""A deployment's history from the index, as of the block up to which it is indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from ledger.chain.addresses import checksum
from ledger.chain.ports import NotServedError
from ledger.history.chain_history import ChainHistory
from ledger.history.documents import Documents, read_documents
from ledger.history.participation import ParticipationCounts, Tally, participation_of
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.index.clients import counts_of, parts_between
from ledger.index.codes import Document, StorageComparison
from ledger.index.digests import occurrences_of
from ledger.index.errors import NotIndexedError
from ledger.index.parts import part_of
from ledger.index.queries import Query
from ledger.index.reading import events_of, lines_between, lines_of
from ledger.index.search import search_page
from ledger.index.tables import ROUND
from ledger.index.waiting import require_no_news

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
    from ledger.history.round import Round
    from ledger.index.remembered import Remembered
    from ledger.index.standing import Events
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader

_TIME = Query(
    select(ROUND.c.ended_time)
    .where(ROUND.c.deployment == bindparam("of"), ROUND.c.ended_block == bindparam("number"))
    .limit(1)
)


class IndexedHistory:
    """The history of one deployment, from the index; see `HistorySource`.

    It lives as long as the reading that it came from. What only the chain has, the calls behind
    decisions and bans, is asked of the contract.

    Attributes:
        path: its name: the chain's, and the contract's address.
        fixed: what was fixed at deployment.
        blobs: where the documents are.
        connection: of the reading.
        row: of the deployment.
    """

    def __init__(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        remembered: Remembered,
        blobs: BlobReader,
        ledger: CommitteeLedger | None = None,
    ) -> None:
        chain = ChainPath(int(row["chain_id"]), row["genesis"])
        self.path = DeploymentPath(chain, checksum(row["address"]))
        self.fixed: Deployment = remembered.fixed(row)
        self.blobs = blobs
        self.connection = connection
        self.row = row
        self._remembered = remembered
        self._ledger = ledger
        self._times: dict[int, int] = {}

    @property
    def block(self) -> int:
        """The block up to which it tells."""
        return int(self.row["block"])

    def stands_at(self, block: Block) -> bool:
        """Say whether it tells of this very block, and the contract's own storage agrees.

        Args:
            block: of the chain; after a fork another block has its number.
        """
        if block.number != self.block or self.row["compared"] != StorageComparison.EQUAL:
            return False
        return bool(self.row["hash"] == block.hash)

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""
        return int(self.row["newest"])

    def round(self, number: int) -> Round | None:
        """Return a round with all that came in, None if it has not opened."""
        if not 1 <= number <= self.newest():
            return None
        events = events_of(self.connection, self.row["id"], number)
        self._remember(events.ended, events.ended_time)
        return events.round(self.fixed, self.registered())

    def rounds(self, first: int, last: int) -> list[Round]:
        """Return the rounds of a range by their openings and ends, ascending.

        Raises:
            NotServedError: not all of them have opened.
        """
        if last > self.newest():
            raise NotServedError(f"round {last} has not opened; the newest is {self.newest()}")
        return self.lines(lines_between(self.connection, self.row["id"], first, last))

    def some(self, numbers: Iterable[int]) -> list[Round]:
        """Return some rounds by their openings and ends, ascending.

        Args:
            numbers: of rounds that have opened, ascending.
        """
        return self.lines(lines_of(self.connection, self.row["id"], numbers))

    def lines(self, found: Iterable[Events]) -> list[Round]:
        """Return rounds by their openings and ends.

        Args:
            found: what the index holds of them.
        """
        registry = self.registered()
        rounds = []
        for events in found:
            self._remember(events.ended, events.ended_time)
            rounds.append(events.line(self.fixed, registry))
        return rounds

    def page(self, walk: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds."""
        return search_page(self, walk, limit, cursor)

    def parts(self, client: ClientId, rounds: Sequence[Round]) -> list[Participation]:
        """Return what a client was and did in some rounds, in their order.

        What was read of a document is told as long as the document is there.

        Raises:
            ValueError: it took no part in one of them.
        """
        if not rounds:
            return []
        numbers = [one.round for one in rounds]
        bounds = min(numbers), max(numbers)
        rows = parts_between(self.connection, self.row["id"], client, *bounds)
        found = []
        for line in rounds:
            row = rows.get(line.round)
            part = part_of(row) if row and self._is_as_read(line, row) else None
            part = part or self._part_now(line.round, client)
            if part is None:
                raise ValueError(f"client {client} took no part in round {line.round}")
            found.append(part)
        return found

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return where a digest stands: the deployment first, then ascending by round.

        Raises:
            IndexDamagedError: it is of no kind that there is.
        """
        require_no_news(self)
        return occurrences_of(self.connection, self.row["id"], digest, first, limit)

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, one)

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""
        return self._remembered.registry(self.connection, self.row)

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""
        require_no_news(self)
        found = counts_of(self.connection, self.row["id"])
        # Who is not registered yet has done nothing.
        found += [ParticipationCounts() for _ in range(self.fixed.clients - len(found))]
        return Tally(int(self.row["ended"]), int(self.row["records_missing"]), tuple(found))

    def time_of(self, block_number: int) -> int:
        """Return the time of a block that ended a round, in Unix seconds.

        Raises:
            NotIndexedError: it ended none.
        """
        if block_number not in self._times:
            asked = {"of": self.row["id"], "number": block_number}
            found = _TIME.rows(self.connection, asked)
            if not found:
                raise NotIndexedError(f"the index holds no round that block {block_number} ended")
            self._times[block_number] = found[0][0]
        return self._times[block_number]

    def decision_call(self, one: Round) -> DecideCall | None:
        """Return the call data that decided a round, from the chain."""
        return self._recorded().decision_call(one)

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that a ban rests on, from the chain."""
        return self._recorded().ban_report(recorded)

    def _is_as_read(self, one: Round, row: Mapping[str, Any]) -> bool:
        """Say whether the documents of a round are there, as they were when it was indexed."""
        decided = one.decided
        if decided is None:
            return True
        if Document.MISSING in {row["record"], row["incidents"]}:
            return False
        digests = [decided.record]
        if row["incidents"] == Document.READ:
            digests.append(decided.incidents)
        return all(map(self.blobs.has, digests))

    def _part_now(self, number: int, client: ClientId) -> Participation | None:
        one = self.round(number)
        return None if one is None else participation_of(one, self.documents(one), client)

    def _recorded(self) -> ChainHistory:
        if self._ledger is None:
            raise NotIndexedError("the index holds no signatures, and no chain was given to ask")
        bounds = (self.block, int(self.row["final"]))
        return ChainHistory(self._ledger, self.fixed, self.blobs, *bounds)

    def _remember(self, ended: RecordedEvent | None, time: int | None) -> None:
        if ended is not None and time is not None:
            self._times[ended.block_number] = time
