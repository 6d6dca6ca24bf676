"""Writes of one deployment: its rounds, their removal, and the position."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ledger.history.digests import digests_of_round
from ledger.history.documents import read_documents
from ledger.history.participation import ParticipationCounts, participations
from ledger.index.codes import OUTCOME_CODES, ROLE_CODES, SCORES_CODES, STATUS_CODES, DocumentState
from ledger.index.reading import events_of
from ledger.index.row_documents import (
    document_states,
    pack_events,
    pack_participation,
    pack_start,
    phase_bits,
    unpack_participation,
)
from ledger.index.schema import (
    BAN,
    CHECKPOINT,
    CLIENT,
    COUNTED,
    COUNTS,
    DEPLOYMENT,
    DIGEST,
    MISSING,
    OF_DEPLOYMENT,
    PARTICIPATION,
    ROUND,
    ROUND_EVENTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.digests import Entry
    from ledger.history.participation import Participation
    from ledger.index.row_documents import RoundEvents
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader

Row = dict[str, Any]


@dataclass(slots=True)
class RoundRows:
    """The rows of some rounds, without the deployment that they belong to.

    Attributes:
        rounds: search columns.
        events: documents of events.
        participations: one row for each client that took part.
        digests: occurrences.
        counts: by client, what these rounds add.
    """

    rounds: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    participations: list[Row] = field(default_factory=list)
    digests: set[Entry] = field(default_factory=set)
    counts: dict[int, ParticipationCounts] = field(default_factory=dict)

    def add(
        self,
        fixed: Deployment,
        registry: tuple[RegisteredClient, ...],
        events: RoundEvents,
        blobs: BlobReader,
        time_of: Callable[[RecordedEvent], int],
    ) -> None:
        """Add a round.

        Args:
            fixed: sizes of the deployment.
            registry: all clients, with bans.
            events: all that the chain holds of the round.
            blobs: where its documents are.
            time_of: returns the time of the block that holds an event.
        """
        round_ = events.round(fixed, registry)
        documents, ended, decided = read_documents(blobs, round_), round_.ended, round_.decided
        record, incidents = document_states(documents, is_decided=decided is not None)
        self.rounds.append(
            {
                "round": round_.round,
                "opened_block": events.start.opened_block,
                "status": STATUS_CODES[round_.status],
                "view": max(decided.views) if decided else 0,
                "ended_block": ended.block_number if ended else None,
                "ended_time": time_of(ended) if ended else None,
                "record": int(record),
                "incidents": int(incidents),
            }
        )
        self.events.append(
            {
                "round": round_.round,
                "start": pack_start(events, round_.trainers),
                "activity": pack_events(events.activity),
                "ended": pack_events([ended]) if ended else None,
            }
        )
        parts = participations(round_, documents)
        base = decided.base if decided else None
        self.participations += [_participation_row(part, round_.round, base) for part in parts]
        self.digests.update(digests_of_round(round_, documents, events.all))
        if ended is not None:
            _add_counts(self.counts, parts)


def _participation_row(part: Participation, number: int, base: Digest | None) -> Row:
    return {
        "client": part.client,
        "round": number,
        "role": ROLE_CODES[part.role],
        "outcome": OUTCOME_CODES[part.outcome],
        "empty_seat": part.empty_seat,
        "scores": SCORES_CODES[part.scores],
        "voted": phase_bits(part.voted),
        "document": pack_participation(part, number, base),
    }


def _add_counts(counts: dict[int, ParticipationCounts], parts: Iterable[Participation]) -> None:
    for part in parts:
        counts.setdefault(part.client, ParticipationCounts()).add(part)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes one deployment's rows in an open transaction.

    Attributes:
        deployment: the deployment's row.
    """

    connection: Connection
    deployment: int

    def is_at(self, row: Mapping[str, Any]) -> bool:
        """Say whether the deployment is still where `row` says, and lock it there."""
        chosen = select(DEPLOYMENT.c.block, DEPLOYMENT.c.rewinds)
        chosen = chosen.where(DEPLOYMENT.c.id == self.deployment).with_for_update()
        return self.connection.execute(chosen).one() == (row["block"], row["rewinds"])

    def update(self, **values: object) -> None:
        """Write the deployment's own row."""
        chosen = update(DEPLOYMENT).where(DEPLOYMENT.c.id == self.deployment)
        self.connection.execute(chosen.values(**values))

    def put(self, rows: RoundRows) -> None:
        """Write rounds that are not there yet."""
        self._insert(ROUND, rows.rounds)
        self._insert(ROUND_EVENTS, rows.events)
        participations = sorted(rows.participations, key=itemgetter("client", "round"))
        self._insert(PARTICIPATION, participations)
        self.put_digests(rows.digests)
        self._add_to_counts(rows.counts, 1)
        self._put_missing(rows.rounds)

    def replace(self, rows: RoundRows) -> None:
        """Write rounds in the place of what is there of them."""
        if not rows.rounds:
            return
        numbers = [row["round"] for row in rows.rounds]
        self._subtract_counts(numbers)
        self._delete_missing(MISSING.c.round.in_(numbers))
        for table in (ROUND, ROUND_EVENTS):
            self._delete(table, ("round",), rows.rounds)
        self._delete(PARTICIPATION, ("client", "round"), rows.participations)
        self.put(rows)

    def put_digests(self, entries: Iterable[Entry]) -> None:
        """Write occurrences of digests; those that are there stay."""
        # In the order of the key, which is what a large table is written in fastest.
        own = self.deployment
        rows = [(digest, own, int(kind), n, client) for digest, kind, n, client in sorted(entries)]
        names = tuple(column.name for column in DIGEST.columns)
        self._insert_tuples(DIGEST, names, rows, or_ignore=True)

    def put_clients(self, first: int, clients: Sequence[RegisteredClient]) -> None:
        """Write clients as they are registered, with counts of 0.

        Args:
            first: index of the first of them.
            clients: as registered.
        """
        rows = [
            {"client": index, "address": client.address, "samples": str(client.samples)}
            for index, client in enumerate(clients, start=first)
        ]
        self._insert(CLIENT, rows)
        self._insert(COUNTS, [{"client": r["client"], **dict.fromkeys(COUNTED, 0)} for r in rows])

    def put_bans(self, bans: Mapping[int, tuple[int, int]]) -> None:
        """Write bans: round and block of each, by client."""
        self._insert(BAN, [{"client": c, "round": n, "block": b} for c, (n, b) in bans.items()])

    def put_checkpoints(self, blocks: Mapping[int, bytes], final: int) -> None:
        """Write blocks that were read; of the final ones only the newest is kept.

        Args:
            blocks: hashes by number.
            final: the newest final block.
        """
        rows = [{"block": number, "hash": digest} for number, digest in sorted(blocks.items())]
        self._insert(CHECKPOINT, rows, or_ignore=True)
        own = CHECKPOINT.c.deployment == self.deployment
        ordered = select(CHECKPOINT.c.block).where(own, CHECKPOINT.c.block <= final)
        newest = self.connection.execute(
            ordered.order_by(CHECKPOINT.c.block.desc()).limit(1)
        ).scalar()
        if newest is not None:
            self.connection.execute(delete(CHECKPOINT).where(own, CHECKPOINT.c.block < newest))

    def newest_opened_by(self, block: int) -> RoundEvents | None:
        """Return the newest round that had opened by a block, with its events up to there."""
        chosen = select(ROUND.c.round).where(
            ROUND.c.deployment == self.deployment, ROUND.c.opened_block <= block
        )
        newest = self.connection.execute(chosen.order_by(ROUND.c.round.desc()).limit(1)).scalar()
        if newest is None:
            return None
        events = events_of(self.connection, self.deployment, newest)
        events.activity = [
            recorded for recorded in events.activity if recorded.block_number <= block
        ]
        if events.ended is not None and events.ended.block_number > block:
            events.ended = None
        return events

    def forget_after(self, block: int, first_round: int, clients: int) -> None:
        """Delete checkpoints and bans after a block, and all rounds from one on.

        Args:
            block: that the chain still has.
            first_round: the first round that is deleted.
            clients: K.
        """
        execute, own = self.connection.execute, self.deployment
        rounds = select(ROUND.c.round).where(
            ROUND.c.deployment == own, ROUND.c.round >= first_round
        )
        self._subtract_counts(execute(rounds).scalars().all())
        self._delete_missing(MISSING.c.round >= first_round)
        for table in (ROUND, ROUND_EVENTS, DIGEST):
            columns = table.c
            execute(delete(table).where(columns.deployment == own, columns.round >= first_round))
        for client in range(clients):
            of_client = (PARTICIPATION.c.deployment == own, PARTICIPATION.c.client == client)
            execute(delete(PARTICIPATION).where(*of_client, PARTICIPATION.c.round >= first_round))
        execute(
            delete(CHECKPOINT).where(CHECKPOINT.c.deployment == own, CHECKPOINT.c.block > block)
        )
        self.forget_bans_after(block)

    def forget_bans_after(self, block: int) -> None:
        """Delete the bans after a block."""
        own = BAN.c.deployment == self.deployment
        self.connection.execute(delete(BAN).where(own, BAN.c.block > block))

    def forget_all(self) -> None:
        """Delete all rows of the deployment but its own."""
        self._delete_missing(MISSING.c.round >= 0)
        for table in OF_DEPLOYMENT:
            self.connection.execute(delete(table).where(table.c.deployment == self.deployment))

    def _subtract_counts(self, numbers: Iterable[int]) -> None:
        """Take back the counts of rounds that have ended."""
        counts: dict[int, ParticipationCounts] = {}
        for number in numbers:
            ended = select(ROUND.c.ended_block).where(
                ROUND.c.deployment == self.deployment, ROUND.c.round == number
            )
            if self.connection.execute(ended).scalar() is None:
                continue
            events = events_of(self.connection, self.deployment, number)
            clients = (*events.start.committee, *(events.trainers or ()))
            chosen = select(PARTICIPATION.c.client, PARTICIPATION.c.document).where(
                PARTICIPATION.c.deployment == self.deployment,
                PARTICIPATION.c.client.in_(clients),
                PARTICIPATION.c.round == number,
            )
            rows = self.connection.execute(chosen)
            _add_counts(counts, [unpack_participation(row[1], row[0], number) for row in rows])
        self._add_to_counts(counts, -1)

    def _add_to_counts(self, counts: Mapping[int, ParticipationCounts], sign: int) -> None:
        rows = [
            {
                "of": self.deployment,
                "by": client,
                **{f"more_{name}": sign * getattr(added, name) for name in COUNTED},
            }
            for client, added in sorted(counts.items())
        ]
        if rows:
            self.connection.execute(_ADD_TO_COUNTS, rows)

    def _put_missing(self, rounds: Iterable[Row]) -> None:
        """Note the rounds that miss a document."""
        missing = [
            {name: row[name] for name in ("round", "record", "incidents")}
            for row in rounds
            if DocumentState.MISSING in {row["record"], row["incidents"]}
        ]
        self._insert(MISSING, missing)
        self._count_missing([row["record"] for row in missing], 1)

    def _delete_missing(self, which: ColumnElement[bool]) -> None:
        own = MISSING.c.deployment == self.deployment
        chosen = delete(MISSING).where(own, which).returning(MISSING.c.record)
        self._count_missing(self.connection.execute(chosen).scalars().all(), -1)

    def _count_missing(self, records: Sequence[int], sign: int) -> None:
        if records:
            missing = sum(record == DocumentState.MISSING for record in records)
            self.update(
                waiting=DEPLOYMENT.c.waiting + sign * len(records),
                records_missing=DEPLOYMENT.c.records_missing + sign * missing,
            )

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
        keys = [{"of": self.deployment, **{f"by_{n}": row[n] for n in names}} for row in rows]
        if not keys:
            return
        conditions = [table.c[name] == bindparam(f"by_{name}") for name in names]
        statement = delete(table).where(table.c.deployment == bindparam("of"), *conditions)
        self.connection.execute(statement, keys)


_ADD_TO_COUNTS = (
    update(COUNTS)
    .where(COUNTS.c.deployment == bindparam("of"), COUNTS.c.client == bindparam("by"))
    .values({name: COUNTS.c[name] + bindparam(f"more_{name}") for name in COUNTED})
)
