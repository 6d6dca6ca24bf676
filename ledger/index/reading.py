"""Reads of one deployment over an open connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from ledger.history.digests import Occurrence
from ledger.history.participation import ParticipationCounts
from ledger.index.index_errors import IndexDamagedError
from ledger.index.queries import Query
from ledger.index.row_documents import unpack_deployment, unpack_events, unpack_start
from ledger.index.schema import (
    BAN,
    CHAIN,
    CHECKPOINT,
    CLIENT,
    COUNTED,
    COUNTS,
    DEPLOYMENT,
    DIGEST,
    MISSING,
    PARTICIPATION,
    ROUND,
    ROUND_EVENTS,
)
from ledger.protocol.types import Address, RegisteredClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.index.queries import Row
    from ledger.index.row_documents import RoundEvents
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import ClientId, Digest

LINE = (ROUND_EVENTS.c.round, ROUND_EVENTS.c.start, ROUND_EVENTS.c.ended, ROUND.c.ended_time)
"""The columns of a round by its start and its end."""

_EVENTS = (
    select(*LINE)
    .join(
        ROUND,
        (ROUND.c.deployment == ROUND_EVENTS.c.deployment) & (ROUND.c.round == ROUND_EVENTS.c.round),
    )
    .where(ROUND_EVENTS.c.deployment == bindparam("of"))
)
_ROUND = Query(
    _EVENTS.add_columns(ROUND_EVENTS.c.activity).where(ROUND_EVENTS.c.round == bindparam("number"))
)
_LINES = _EVENTS.order_by(ROUND_EVENTS.c.round)
_BETWEEN = Query(_LINES.where(ROUND_EVENTS.c.round.between(bindparam("first"), bindparam("last"))))
_LISTED = _LINES.where(ROUND_EVENTS.c.round.in_(bindparam("numbers", expanding=True)))
_DEPLOYMENT = Query(
    select(DEPLOYMENT, CHAIN.c.chain_id, CHAIN.c.genesis, CHECKPOINT.c.hash)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .outerjoin(
        CHECKPOINT,
        (CHECKPOINT.c.deployment == DEPLOYMENT.c.id) & (CHECKPOINT.c.block == DEPLOYMENT.c.block),
    )
    .where(CHAIN.c.genesis == bindparam("genesis"), DEPLOYMENT.c.address == bindparam("address")),
    optional=("hash",),
)
_CLIENTS = Query(
    select(CLIENT.c.address, CLIENT.c.samples, BAN.c.round)
    .outerjoin(BAN, (BAN.c.deployment == CLIENT.c.deployment) & (BAN.c.client == CLIENT.c.client))
    .where(CLIENT.c.deployment == bindparam("of"))
    .order_by(CLIENT.c.client),
    optional=("round",),
)
_COUNTS = Query(
    select(*(COUNTS.c[name] for name in COUNTED))
    .where(COUNTS.c.deployment == bindparam("of"))
    .order_by(COUNTS.c.client)
)
_PARTICIPATIONS = Query(
    select(PARTICIPATION.c.round, PARTICIPATION.c.document, ROUND.c.record, ROUND.c.incidents)
    .join(
        ROUND,
        (ROUND.c.deployment == PARTICIPATION.c.deployment)
        & (ROUND.c.round == PARTICIPATION.c.round),
    )
    .where(
        PARTICIPATION.c.deployment == bindparam("of"),
        PARTICIPATION.c.client == bindparam("by"),
        PARTICIPATION.c.round.between(bindparam("first"), bindparam("last")),
    )
)
_OCCURRENCES = Query(
    select(DIGEST.c.kind, DIGEST.c.round, DIGEST.c.client)
    .where(DIGEST.c.deployment == bindparam("of"), DIGEST.c.digest == bindparam("digest"))
    .order_by(DIGEST.c.round, DIGEST.c.kind, DIGEST.c.client)
    .offset(bindparam("first"))
    .limit(bindparam("most"))
)
_END_TIME = Query(
    select(ROUND.c.ended_time)
    .where(ROUND.c.deployment == bindparam("of"), ROUND.c.ended_block == bindparam("number"))
    .limit(1)
)
_MISSING = Query(
    select(MISSING.c.round, MISSING.c.record, MISSING.c.incidents)
    .where(MISSING.c.deployment == bindparam("of"))
    .order_by(MISSING.c.round.desc())
    .limit(bindparam("most"))
)


@dataclass(slots=True)
class ReadingCache:
    """Rows that readings share, by all that can change them; safe to share between threads."""

    _fixed: dict[bytes, Deployment] = field(default_factory=dict)
    _registries: dict[tuple[bytes, bytes], tuple[tuple[int, ...], tuple[RegisteredClient, ...]]] = (
        field(default_factory=dict)
    )

    def fixed(self, row: Mapping[str, Any]) -> Deployment:
        """Return what was fixed at deployment."""
        document = row["fixed"]
        if document not in self._fixed:
            self._fixed[document] = unpack_deployment(document)
        return self._fixed[document]

    def registry(
        self, connection: Connection, row: Mapping[str, Any]
    ) -> tuple[RegisteredClient, ...]:
        """Return the clients of a deployment, with bans.

        Raises:
            IndexDamagedError: they are fewer or more than the row says.
        """
        name = row["genesis"], row["address"]
        state = row["registered"], row["banned"], row["rewinds"]
        cached = self._registries.get(name)
        if cached is None or cached[0] != state:
            registry = registry_of(connection, row["id"])
            if len(registry) != row["registered"]:
                raise IndexDamagedError(
                    f"the index holds {len(registry)} clients where {row['registered']} are "
                    "registered: run cmfl index rebuild"
                )
            cached = self._registries[name] = state, registry
        return cached[1]


def deployment_row(connection: Connection, genesis: bytes, address: bytes) -> dict[str, Any] | None:
    """Return the row of a deployment with its chain's, None if it is not indexed.

    Its `hash` is that of the block up to which the chain is read.
    """
    rows = _DEPLOYMENT.mappings(connection, {"genesis": genesis, "address": address})
    return rows[0] if rows else None


def events_of(connection: Connection, deployment: int, number: int) -> RoundEvents:
    """Return the events of a round.

    Raises:
        IndexDamagedError: the round is missing, or was altered.
    """
    rows = _ROUND.rows(connection, {"of": deployment, "number": number})
    if not rows:
        raise IndexDamagedError(_missing_round(number))
    *line, activity = rows[0]
    return events_of_line(line, unpack_events(activity))


def lines_between(
    connection: Connection, deployment: int, first: int, last: int
) -> list[RoundEvents]:
    """Return start and end of each round of a range, ascending.

    Raises:
        IndexDamagedError: one of them is missing, or was altered.
    """
    bounds = {"of": deployment, "first": first, "last": last}
    return _lines(_BETWEEN.rows(connection, bounds), range(first, last + 1))


def lines_of(connection: Connection, deployment: int, numbers: Iterable[int]) -> list[RoundEvents]:
    """Return start and end of each of these rounds, ascending.

    Raises:
        IndexDamagedError: one of them is missing, or was altered.
    """
    ascending = sorted(numbers)
    result = connection.execute(_LISTED, {"of": deployment, "numbers": ascending}).all()
    rows = [tuple(row) for row in result]
    _BETWEEN.require_kinds(rows)
    return _lines(rows, ascending)


def events_of_line(row: Sequence[Any], activity: Sequence[RecordedEvent] = ()) -> RoundEvents:
    """Return the events behind a row.

    Raises:
        IndexDamagedError: a document is missing, or was altered.
    """
    number, start, ended, ended_time = row
    if start is None:
        raise IndexDamagedError(_missing_round(number))
    events = unpack_start(start)
    events.activity = list(activity)
    events.ended = None if ended is None else unpack_events(ended)[0]
    events.ended_time = ended_time
    return events


def registry_of(connection: Connection, deployment: int) -> tuple[RegisteredClient, ...]:
    """Return the clients registered so far, with bans."""
    rows = _CLIENTS.rows(connection, {"of": deployment})
    return tuple(
        RegisteredClient(Address(address), int(samples), banned_in or 0)
        for address, samples, banned_in in rows
    )


def participation_rows(
    connection: Connection, deployment: int, client: ClientId, first: int, last: int
) -> dict[int, dict[str, Any]]:
    """Return a client's participations in a range of rounds by number, with document states."""
    values = {"of": deployment, "by": client, "first": first, "last": last}
    return {row["round"]: row for row in _PARTICIPATIONS.mappings(connection, values)}


def counts_of(connection: Connection, deployment: int) -> list[ParticipationCounts]:
    """Return the counts of all registered clients, by index."""
    return [ParticipationCounts(*row) for row in _COUNTS.rows(connection, {"of": deployment})]


def occurrences_of(
    connection: Connection, deployment: int, digest: Digest, first: int, limit: int
) -> list[Occurrence]:
    """Return the occurrences of a digest: those of the deployment, then ascending by round.

    Raises:
        IndexDamagedError: one is of an unknown kind.
    """
    values = {"of": deployment, "digest": digest, "first": first, "most": limit}
    try:
        return [Occurrence.of(*row) for row in _OCCURRENCES.rows(connection, values)]
    except ValueError as error:
        raise IndexDamagedError(f"the index holds a digest of no kind: {error}") from error


def end_time(connection: Connection, deployment: int, block_number: int) -> int | None:
    """Return the time of a block that ended a round, in Unix seconds; None if it ended none."""
    rows = _END_TIME.rows(connection, {"of": deployment, "number": block_number})
    return rows[0][0] if rows else None


def missing_documents(
    connection: Connection, deployment: int, limit: int
) -> dict[int, tuple[int, int]]:
    """Return the newest rounds that miss a document, with the states of record and incidents."""
    rows = _MISSING.rows(connection, {"of": deployment, "most": limit})
    return {number: (record, incidents) for number, record, incidents in rows}


def _lines(rows: Sequence[Row], numbers: Sequence[int]) -> list[RoundEvents]:
    if [row[0] for row in rows] != list(numbers):
        raise IndexDamagedError(
            _missing_round(min(set(numbers).difference(row[0] for row in rows)))
        )
    return [events_of_line(row) for row in rows]


def _missing_round(number: int) -> str:
    return f"the index lacks round {number} of a deployment that has it: run cmfl index rebuild"
