"""A deployment's history from the index, as of the block up to which it is indexed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import bindparam, func, select

from ledger.chain.addresses import checksum
from ledger.chain.ports import NotServedError
from ledger.history.documents import Documents, read_documents
from ledger.history.participation import Counts, Tally
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.history.recorded import RecordedHistory
from ledger.index.codes import Document
from ledger.index.errors import NotIndexedError
from ledger.index.packing import unpack_fixed
from ledger.index.parts import part_of
from ledger.index.reading import events_of, lines_between, lines_of, registry_of
from ledger.index.rows import COUNTED
from ledger.index.tables import COUNTS, INCOMPLETE, PARTICIPATION, ROUND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, RowMapping

    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.calls import DecideCall
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.events import Recorded
    from ledger.history.participation import Participation
    from ledger.history.round import Round
    from ledger.index.standing import Events
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, RegisteredClient

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
_PARTS = select(PARTICIPATION).where(
    PARTICIPATION.c.deployment == bindparam("of"),
    PARTICIPATION.c.client == bindparam("by"),
    PARTICIPATION.c.round.in_(bindparam("numbers", expanding=True)),
)
_TIME = select(ROUND.c.ended_time).where(
    ROUND.c.deployment == bindparam("of"), ROUND.c.ended_block == bindparam("number")
)


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
            numbers: of rounds that have opened.
        """
        return self._lines(lines_of(self.connection, self.row["id"], numbers))

    def parts(self, client: ClientId, numbers: Iterable[int]) -> dict[int, Participation]:
        """Return what a client was and did in some rounds, by their numbers.

        The documents are those that were there when the rounds were indexed.

        Args:
            client: its index.
            numbers: of rounds; those that it took no part in are left out.
        """
        asked = {"of": self.row["id"], "by": client, "numbers": list(numbers)}
        rows = self.connection.execute(_PARTS, asked).mappings()
        return {row["round"]: part_of(row) for row in rows}

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, one)

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""
        return self._remembered.registry(self.connection, self.row)

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""
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
