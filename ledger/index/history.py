"""A deployment's history from the index, as of the block up to which it is indexed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import bindparam, func, select

from ledger.chain.addresses import checksum
from ledger.chain.ports import NotServedError
from ledger.history.digests import Occurrence
from ledger.history.documents import Documents, read_documents
from ledger.history.participation import Counts, Tally, participation_of
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.history.recorded import RecordedHistory
from ledger.index.codes import Compared, Document
from ledger.index.errors import IndexDamagedError, IndexStaleError, NotIndexedError
from ledger.index.packing import unpack_fixed
from ledger.index.parts import part_of
from ledger.index.reading import events_of, lines_between, lines_of, registry_of
from ledger.index.rows import COUNTED, standing_of
from ledger.index.search import search_page
from ledger.index.tables import CHECKPOINT, COUNTS, DIGEST, INCOMPLETE, PARTICIPATION, ROUND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, RowMapping

    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.calls import DecideCall
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.events import Recorded
    from ledger.chain.ports import Block
    from ledger.history.pages import RoundPage, Walk
    from ledger.history.participation import Participation
    from ledger.history.round import Round
    from ledger.index.standing import Events
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient

_COUNTS = (
    select(*(COUNTS.c[name] for name in COUNTED))
    .where(COUNTS.c.deployment == bindparam("of"))
    .order_by(COUNTS.c.client)
)
_MISSING = (
    select(func.count())
    .select_from(ROUND)
    # The first condition is that of the index, word for word.
    .where(ROUND.c.deployment == bindparam("of"), INCOMPLETE, ROUND.c.record == Document.MISSING)
)
_PARTS = (
    select(PARTICIPATION, ROUND.c.record, ROUND.c.incidents)
    .join(
        ROUND,
        (ROUND.c.deployment == PARTICIPATION.c.deployment)
        & (ROUND.c.round == PARTICIPATION.c.round),
    )
    .where(
        PARTICIPATION.c.deployment == bindparam("of"),
        PARTICIPATION.c.client == bindparam("by"),
        PARTICIPATION.c.round.in_(bindparam("numbers", expanding=True)),
    )
)
_WAITING = (
    select(ROUND.c.round, ROUND.c.record, ROUND.c.incidents)
    .where(ROUND.c.deployment == bindparam("of"), INCOMPLETE)
    .order_by(ROUND.c.round.desc())
    .limit(bindparam("most"))
)
_PLACES = (
    select(DIGEST.c.kind, DIGEST.c.round, DIGEST.c.client)
    .where(DIGEST.c.deployment == bindparam("of"), DIGEST.c.digest == bindparam("digest"))
    .order_by(DIGEST.c.round, DIGEST.c.kind, DIGEST.c.client)
    .offset(bindparam("first"))
    .limit(bindparam("most"))
)
_HASH = select(CHECKPOINT.c.hash).where(
    CHECKPOINT.c.deployment == bindparam("of"), CHECKPOINT.c.block == bindparam("number")
)
_TIME = select(ROUND.c.ended_time).where(
    ROUND.c.deployment == bindparam("of"), ROUND.c.ended_block == bindparam("number")
)

MOST_WAITING = 64
"""Rounds whose missing documents are looked for before counts are told; the newest of them."""

_Registry: TypeAlias = "tuple[tuple[int, ...], tuple[RegisteredClient, ...]]"


@dataclass(slots=True)
class Remembered:
    """What was read of deployments, by all that can change it; safe to share between threads."""

    _fixed: dict[bytes, Deployment] = field(default_factory=dict)
    _registries: dict[tuple[bytes, bytes], _Registry] = field(default_factory=dict)

    def fixed(self, row: RowMapping) -> Deployment:
        """Return what was fixed at deployment.

        Args:
            row: of the deployment.
        """
        packed = row["fixed"]
        if packed not in self._fixed:
            self._fixed[packed] = unpack_fixed(packed)
        return self._fixed[packed]

    def registry(self, connection: Connection, row: RowMapping) -> tuple[RegisteredClient, ...]:
        """Return the clients of a deployment, with bans.

        Args:
            connection: to the index.
            row: of the deployment.
        """
        name = row["genesis"], row["address"]
        state = row["registered"], row["banned"], row["rewinds"]
        known = self._registries.get(name)
        if known is None or known[0] != state:
            known = self._registries[name] = state, registry_of(connection, row["id"])
        return known[1]


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
        row: RowMapping,
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
        """Say whether it tells of this very block, and the contract has not contradicted it.

        Args:
            block: of the chain; after a fork another block has its number.
        """
        if block.number != self.block or self.row["compared"] == Compared.DIFFERENT:
            return False
        found = self.connection.execute(_HASH, {"of": self.row["id"], "number": block.number})
        return found.scalar() == block.hash

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
        return self._lines(lines_between(self.connection, self.row["id"], first, last))

    def some(self, numbers: Iterable[int]) -> list[Round]:
        """Return some rounds by their openings and ends, ascending.

        Args:
            numbers: of rounds that have opened, ascending.
        """
        return self._lines(lines_of(self.connection, self.row["id"], numbers))

    def page(self, walk: Walk, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds."""
        return search_page(self, walk, limit, cursor)

    def parts(self, client: ClientId, rounds: Sequence[Round]) -> list[Participation]:
        """Return what a client was and did in some rounds, in their order.

        What was read of a document is told as long as the document is there.

        Raises:
            ValueError: it took no part in one of them.
        """
        numbers = [one.round for one in rounds]
        asked = {"of": self.row["id"], "by": client, "numbers": numbers}
        rows = {row["round"]: row for row in self.connection.execute(_PARTS, asked).mappings()}
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
        self._require_no_news()
        asked = {"of": self.row["id"], "digest": digest, "first": first, "most": limit}
        rows = self.connection.execute(_PLACES, asked).all()
        try:
            return [Occurrence.of(*row) for row in rows]
        except ValueError as error:
            raise IndexDamagedError(f"the index holds a digest of no kind: {error}") from error

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, one)

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""
        return self._remembered.registry(self.connection, self.row)

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""
        self._require_no_news()
        rows = self.connection.execute(_COUNTS, {"of": self.row["id"]})
        found = [Counts(*row) for row in rows]
        # Who is not registered yet has done nothing.
        found += [Counts() for _ in range(self.fixed.clients - len(found))]
        return Tally(int(self.row["ended"]), self.records_missing(), tuple(found))

    def records_missing(self) -> int:
        """Return of how many decided rounds the record was not there."""
        found = self.connection.execute(_MISSING, {"of": self.row["id"]})
        return int(found.scalar_one())

    def time_of(self, block_number: int) -> int:
        """Return the time of a block that ended a round, in Unix seconds.

        Raises:
            NotIndexedError: it ended none.
        """
        if block_number not in self._times:
            asked = {"of": self.row["id"], "number": block_number}
            found = self.connection.execute(_TIME.limit(1), asked).scalar()
            if found is None:
                raise NotIndexedError(f"the index holds no round that block {block_number} ended")
            self._times[block_number] = found
        return self._times[block_number]

    def decision_call(self, one: Round) -> DecideCall | None:
        """Return the call data that decided a round, from the chain."""
        return self._recorded().decision_call(one)

    def ban_report(self, recorded: Recorded) -> EquivocationReport | None:
        """Return the two statements that a ban rests on, from the chain."""
        return self._recorded().ban_report(recorded)

    def _is_as_read(self, one: Round, row: RowMapping) -> bool:
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

    def _require_no_news(self) -> None:
        """Refuse counts and digests while a document is there that was missing before.

        Raises:
            IndexStaleError: one has come, and is not indexed yet.
        """
        asked = {"of": self.row["id"], "most": MOST_WAITING}
        waiting = {row.round: row for row in self.connection.execute(_WAITING, asked)}
        for one in self.some(waiting) if waiting else ():
            row = waiting[one.round]
            documents = self.documents(one)
            if standing_of(documents, is_decided=True) != (row.record, row.incidents):
                raise IndexStaleError(f"a document of round {one.round} has come meanwhile")

    def _recorded(self) -> RecordedHistory:
        if self._ledger is None:
            raise NotIndexedError("the index holds no signatures, and no chain was given to ask")
        bounds = (self.block, int(self.row["final"]))
        return RecordedHistory(self._ledger, self.fixed, self.blobs, *bounds)

    def _lines(self, found: list[Events]) -> list[Round]:
        registry = self.registered()
        for events in found:
            self._remember(events.ended, events.ended_time)
        return [events.line(self.fixed, registry) for events in found]

    def _remember(self, ended: Recorded | None, time: int | None) -> None:
        if ended is not None and time is not None:
            self._times[ended.block_number] = time
