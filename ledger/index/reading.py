"""What the index holds of one deployment, read over an open connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from ledger.index.errors import IndexDamagedError
from ledger.index.packing import unpack_events, unpack_opening
from ledger.index.queries import Query
from ledger.index.standing import Events
from ledger.index.tables import BAN, CHAIN, CHECKPOINT, CLIENT, DEPLOYMENT, ROUND, TOLD
from ledger.protocol.types import Address, RegisteredClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.index.queries import Row

LINE = (TOLD.c.round, TOLD.c.opening, TOLD.c.ended, ROUND.c.ended_time)
"""The columns of a round by its opening and its end."""

_TOLD = (
    select(*LINE)
    .join(ROUND, (ROUND.c.deployment == TOLD.c.deployment) & (ROUND.c.round == TOLD.c.round))
    .where(TOLD.c.deployment == bindparam("of"))
)
_ONE = Query(_TOLD.add_columns(TOLD.c.course).where(TOLD.c.round == bindparam("number")))
_LINES = _TOLD.order_by(TOLD.c.round)
_BETWEEN = Query(_LINES.where(TOLD.c.round.between(bindparam("first"), bindparam("last"))))
_SOME = _LINES.where(TOLD.c.round.in_(bindparam("numbers", expanding=True)))
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


def deployment_row(connection: Connection, genesis: bytes, address: bytes) -> dict[str, Any] | None:
    """Return the row of a deployment with its chain's, None if it is not indexed.

    Its `hash` is that of the block up to which the chain is read.

    Args:
        connection: to the index.
        genesis: hash of the chain's block 0.
        address: of the contract, 20 bytes.
    """
    found = _DEPLOYMENT.mappings(connection, {"genesis": genesis, "address": address})
    return found[0] if found else None


def events_of(connection: Connection, deployment: int, number: int) -> Events:
    """Return what the chain holds of a round.

    Args:
        connection: to the index.
        deployment: its row.
        number: t.

    Raises:
        IndexDamagedError: the round is not there.
    """
    rows = _ONE.rows(connection, {"of": deployment, "number": number})
    if not rows:
        raise IndexDamagedError(_lacks(number))
    *line, course = rows[0]
    return events_of_line(line, unpack_events(course))


def lines_between(connection: Connection, deployment: int, first: int, last: int) -> list[Events]:
    """Return openings and ends of a range of rounds, ascending; nothing of what came in between.

    Args:
        connection: to the index.
        deployment: its row.
        first: its first round.
        last: its last round.

    Raises:
        IndexDamagedError: one of them is not there.
    """
    bounds = {"of": deployment, "first": first, "last": last}
    return _lines(_BETWEEN.rows(connection, bounds), range(first, last + 1))


def lines_of(connection: Connection, deployment: int, numbers: Iterable[int]) -> list[Events]:
    """Return openings and ends of some rounds, ascending; nothing of what came in between.

    Args:
        connection: to the index.
        deployment: its row.
        numbers: of the rounds.

    Raises:
        IndexDamagedError: one of them is not there.
    """
    wanted = sorted(numbers)
    found = connection.execute(_SOME, {"of": deployment, "numbers": wanted}).all()
    rows = [tuple(row) for row in found]
    _BETWEEN.require_kinds(rows)
    return _lines(rows, wanted)


def _lines(rows: Sequence[Row], wanted: Sequence[int]) -> list[Events]:
    if [row[0] for row in rows] != list(wanted):
        missing = sorted(set(wanted).difference(row[0] for row in rows))
        raise IndexDamagedError(_lacks(missing[0]))
    return [events_of_line(row) for row in rows]


def events_of_line(row: Sequence[Any], course: Sequence[RecordedEvent] = ()) -> Events:
    """Return what a row tells of a round.

    Args:
        row: values of the columns `LINE`.
        course: commitments and bans, where they were read.

    Raises:
        IndexDamagedError: it is nothing that was written, or the round was found, and not this.
    """
    number, packed, packed_end, ended_time = row
    if packed is None:
        raise IndexDamagedError(_lacks(number))
    opening, trainers = unpack_opening(packed)
    ended = None if packed_end is None else unpack_events(packed_end)[0]
    return Events(opening, list(course), ended, trainers, ended_time)


def _lacks(number: int) -> str:
    return f"the index lacks round {number} of a deployment that has it: drop it and build it again"


def registry_of(connection: Connection, deployment: int) -> tuple[RegisteredClient, ...]:
    """Return the clients registered so far, with bans.

    Args:
        connection: to the index.
        deployment: its row.
    """
    rows = _CLIENTS.rows(connection, {"of": deployment})
    return tuple(
        RegisteredClient(Address(address), int(samples), banned_in or 0)
        for address, samples, banned_in in rows
    )
