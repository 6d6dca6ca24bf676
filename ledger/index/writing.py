"""Writing what was read: rows of rounds, their removal, and the position, all of one deployment."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ledger.index.codes import Document
from ledger.index.parts import add_counts, part_of
from ledger.index.reading import events_of, registry_of
from ledger.index.rows import COUNTED
from ledger.index.standing import Standing
from ledger.index.tables import (
    BAN,
    CHECKPOINT,
    CLIENT,
    COUNTS,
    DEPLOYMENT,
    DIGEST,
    PARTICIPATION,
    ROUND,
    TOLD,
    WAITING,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ledger.history.digests import Entry
    from ledger.history.participation import ParticipationCounts
    from ledger.index.rows import RoundRows
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest, RegisteredClient

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes one deployment's rows in an open transaction.

    Attributes:
        connection: with the transaction.
        deployment: the deployment's row.
    """

    connection: Connection
    deployment: int

    def put(self, rows: RoundRows) -> None:
        """Write rounds of which nothing is there yet.

        Args:
            rows: of rounds.
        """
        self._insert(ROUND, rows.rounds)
        self._insert(TOLD, rows.told)
        self._insert(PARTICIPATION, sorted(rows.parts, key=itemgetter("client", "round")))
        self.put_digests(rows.digests)
        self._count(rows.counts, 1)
        self._wait(rows.rounds)

    def put_again(self, rows: RoundRows) -> None:
        """Write rounds in the place of what is there of them.

        Args:
            rows: of rounds.
        """
        if not rows.rounds:
            return
        numbers = [row["round"] for row in rows.rounds]
        self._uncount(numbers)
        self._stop_waiting(WAITING.c.round.in_(numbers))
        for table in (ROUND, TOLD):
            self._delete(table, ("round",), rows.rounds)
        self._delete(PARTICIPATION, ("client", "round"), rows.parts)
        self.put(rows)

    def put_digests(self, entries: Iterable[Entry]) -> None:
        """Write where digests stand; what is known already stays."""
        # In the order of the key, which is what a large table is written in fastest.
        own, found = self.deployment, sorted(entries)
        rows = [(digest, own, int(kind), number, of) for digest, kind, number, of in found]
        self._insert_tuples(DIGEST, _DIGESTS, rows, or_ignore=True)

    def put_clients(self, first: int, clients: Sequence[RegisteredClient]) -> None:
        """Write clients as they are registered, with counts of nothing.

        Args:
            first: index of the first of them.
            clients: as registered.
        """
        rows = [
            {"client": at, "address": client.address, "samples": str(client.samples)}
            for at, client in enumerate(clients, start=first)
        ]
        self._insert(CLIENT, rows)
        self._insert(COUNTS, [{"client": r["client"], **dict.fromkeys(COUNTED, 0)} for r in rows])

    def put_bans(self, bans: Mapping[int, tuple[int, int]]) -> None:
        """Write bans.

        Args:
            bans: round and block of each, by client.
        """
        rows = [{"client": c, "round": n, "block": b} for c, (n, b) in bans.items()]
        self._insert(BAN, rows)

    def put_checkpoints(self, blocks: Mapping[int, bytes], final: int) -> None:
        """Write blocks that were read through; of the final ones only the newest is kept.

        Args:
            blocks: hashes by number.
            final: the newest final block.
        """
        found = [{"block": number, "hash": found} for number, found in sorted(blocks.items())]
        self._insert(CHECKPOINT, found, or_ignore=True)
        own = CHECKPOINT.c.deployment == self.deployment
        newest = select(CHECKPOINT.c.block).where(own, CHECKPOINT.c.block <= final)
        kept = self.connection.execute(newest.order_by(CHECKPOINT.c.block.desc()).limit(1)).scalar()
        if kept is not None:
            self.connection.execute(delete(CHECKPOINT).where(own, CHECKPOINT.c.block < kept))

    def update(self, **values: object) -> None:
        """Write the deployment's own row."""
        chosen = update(DEPLOYMENT).where(DEPLOYMENT.c.id == self.deployment)
        self.connection.execute(chosen.values(**values))

    def is_at(self, row: Mapping[str, Any]) -> bool:
        """Say whether the deployment is where it was read to be; until the end nobody moves it.

        Args:
            row: of the deployment, as it was read.
        """
        chosen = select(DEPLOYMENT.c.block, DEPLOYMENT.c.rewinds)
        chosen = chosen.where(DEPLOYMENT.c.id == self.deployment).with_for_update()
        return self.connection.execute(chosen).one() == (row["block"], row["rewinds"])

    def rewind(self, fixed: Deployment, block: int) -> Standing:
        """Forget all that stands after a block, and the round that was open then.

        Args:
            fixed: what was fixed at deployment.
            block: that the chain still has.

        Returns:
            Where the deployment stands there; its newest round has to be written again.
        """
        execute, own = self.connection.execute, self.deployment
        stays = (ROUND.c.deployment == own, ROUND.c.opened_block <= block)
        chosen = select(ROUND.c.round).where(*stays).order_by(ROUND.c.round.desc()).limit(1)
        newest = execute(chosen).scalar()
        if newest is None:
            return self._forget_all(fixed)
        events = events_of(self.connection, own, newest)
        events.course = [one for one in events.course if one.block_number <= block]
        if events.ended is not None and events.ended.block_number > block:
            events.ended = None
        self._uncount(self._from(newest))
        self._forget_rounds(newest, fixed.clients)
        for table in (CHECKPOINT, BAN):
            columns = table.c
            execute(delete(table).where(columns.deployment == own, columns.block > block))
        head = events.head(self._head_after(newest - 1, fixed))
        return Standing.of(fixed, registry_of(self.connection, own), head, events)

    def _head_after(self, number: int, fixed: Deployment) -> Digest:
        """Return the head with which a round ended; before the first it is the configuration."""
        if number == 0:
            return fixed.config
        return events_of(self.connection, self.deployment, number).head(fixed.config)

    def _forget_rounds(self, first: int, clients: int) -> None:
        """Forget all rounds from one on; counts and bans stay."""
        execute, own = self.connection.execute, self.deployment
        self._stop_waiting(WAITING.c.round >= first)
        for table in (ROUND, TOLD, DIGEST):
            columns = table.c
            execute(delete(table).where(columns.deployment == own, columns.round >= first))
        for client in range(clients):
            of_client = (PARTICIPATION.c.deployment == own, PARTICIPATION.c.client == client)
            execute(delete(PARTICIPATION).where(*of_client, PARTICIPATION.c.round >= first))

    def _forget_all(self, fixed: Deployment) -> Standing:
        """Forget a deployment whose first round is not there any more."""
        self._stop_waiting(WAITING.c.round >= 0)
        for table in (ROUND, TOLD, DIGEST, PARTICIPATION, BAN, COUNTS, CLIENT, CHECKPOINT):
            columns = table.c
            self.connection.execute(delete(table).where(columns.deployment == self.deployment))
        return Standing.at_deployment(fixed)

    def _from(self, number: int) -> list[int]:
        chosen = select(ROUND.c.round).where(
            ROUND.c.deployment == self.deployment, ROUND.c.round >= number
        )
        return list(self.connection.execute(chosen).scalars())

    def _uncount(self, numbers: Iterable[int]) -> None:
        """Take back what rounds that have ended were counted with."""
        found: dict[int, ParticipationCounts] = {}
        for number in numbers:
            ended = select(ROUND.c.ended_block).where(
                ROUND.c.deployment == self.deployment, ROUND.c.round == number
            )
            if self.connection.execute(ended).scalar() is None:
                continue
            events = events_of(self.connection, self.deployment, number)
            clients = (*events.opening.committee, *(events.trainers or ()))
            chosen = select(PARTICIPATION).where(
                PARTICIPATION.c.deployment == self.deployment,
                PARTICIPATION.c.client.in_(clients),
                PARTICIPATION.c.round == number,
            )
            rows = self.connection.execute(chosen).mappings()
            add_counts(found, [part_of(dict(row)) for row in rows])
        self._count(found, -1)

    def _wait(self, rounds: Iterable[Row]) -> None:
        """Have rounds wait that lack a document."""
        lacking = [
            {name: row[name] for name in ("round", "record", "incidents")}
            for row in rounds
            if Document.MISSING in {row["record"], row["incidents"]}
        ]
        self._insert(WAITING, lacking)
        self._count_waiting([row["record"] for row in lacking], 1)

    def _stop_waiting(self, which: ColumnElement[bool]) -> None:
        own = WAITING.c.deployment == self.deployment
        chosen = delete(WAITING).where(own, which).returning(WAITING.c.record)
        self._count_waiting(self.connection.execute(chosen).scalars().all(), -1)

    def _count_waiting(self, records: Sequence[int], sign: int) -> None:
        if records:
            missing = sum(record == Document.MISSING for record in records)
            self.update(
                waiting=DEPLOYMENT.c.waiting + sign * len(records),
                records_missing=DEPLOYMENT.c.records_missing + sign * missing,
            )

    def _count(self, counts: Mapping[int, ParticipationCounts], sign: int) -> None:
        rows = [
            {
                "of": self.deployment,
                "by": client,
                **{f"more_{name}": sign * getattr(found, name) for name in COUNTED},
            }
            for client, found in sorted(counts.items())
        ]
        if rows:
            self.connection.execute(_COUNT_ON, rows)

    def _insert(self, table: Table, rows: Sequence[Row], *, or_ignore: bool = False) -> None:
        if not rows:
            return
        for row in rows:
            row["deployment"] = self.deployment
        names = tuple(column.name for column in table.columns if column.name in rows[0])
        tuples = list(map(itemgetter(*names), rows))
        self._insert_tuples(table, names, tuples, or_ignore=or_ignore)

    def _insert_tuples(
        self,
        table: Table,
        names: tuple[str, ...],
        rows: Sequence[tuple[Any, ...]],
        *,
        or_ignore: bool,
    ) -> None:
        """Insert rows of values in the order of their columns' names, which is the table's."""
        if not rows:
            return
        statement = insert(table)
        if or_ignore:
            dialect = self.connection.dialect.name
            of_dialect = sqlite.insert if dialect == "sqlite" else postgresql.insert
            statement = of_dialect(table).on_conflict_do_nothing()
        compiled = statement.compile(dialect=self.connection.dialect, column_keys=list(names))
        # The values are what the driver takes, and its own loop is twice as fast as SQLAlchemy's.
        by_name = compiled.positiontup is None
        values = [dict(zip(names, row, strict=True)) for row in rows] if by_name else rows
        self.connection.exec_driver_sql(str(compiled), list(values))

    def _delete(self, table: Table, names: Sequence[str], rows: Iterable[Row]) -> None:
        found = [{"of": self.deployment, **{f"by_{n}": row[n] for n in names}} for row in rows]
        if not found:
            return
        keys = [table.c[name] == bindparam(f"by_{name}") for name in names]
        statement = delete(table).where(table.c.deployment == bindparam("of"), *keys)
        self.connection.execute(statement, found)


_DIGESTS = tuple(column.name for column in DIGEST.columns)
_COUNT_ON = (
    update(COUNTS)
    .where(COUNTS.c.deployment == bindparam("of"), COUNTS.c.client == bindparam("by"))
    .values({name: COUNTS.c[name] + bindparam(f"more_{name}") for name in COUNTED})
)
