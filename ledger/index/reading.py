"""What the index holds of one deployment, read over an open connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from ledger.index.errors import IndexDamagedError
from ledger.index.packing import unpack_events, unpack_opening
from ledger.index.standing import Events
from ledger.index.tables import BAN, CHAIN, CLIENT, DEPLOYMENT, ROUND, TOLD
from ledger.protocol.types import Address, RegisteredClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, RowMapping

    from ledger.chain.contract.events import Recorded

_TOLD = (
    select(TOLD.c.round, TOLD.c.opening, TOLD.c.course, TOLD.c.ended, ROUND.c.ended_time)
    .join(ROUND, (ROUND.c.deployment == TOLD.c.deployment) & (ROUND.c.round == TOLD.c.round))
    .where(TOLD.c.deployment == bindparam("of"))
)
_ONE = _TOLD.where(TOLD.c.round == bindparam("number"))
_LINES = _TOLD.with_only_columns(
    TOLD.c.round, TOLD.c.opening, TOLD.c.ended, ROUND.c.ended_time
).order_by(TOLD.c.round)
_BETWEEN = _LINES.where(TOLD.c.round.between(bindparam("first"), bindparam("last")))
_SOME = _LINES.where(TOLD.c.round.in_(bindparam("numbers", expanding=True)))
_DEPLOYMENT = (
    select(DEPLOYMENT, CHAIN.c.chain_id, CHAIN.c.genesis)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .where(CHAIN.c.genesis == bindparam("genesis"), DEPLOYMENT.c.address == bindparam("address"))
)
_CLIENTS = (
    select(CLIENT.c.address, CLIENT.c.samples, BAN.c.round)
    .outerjoin(BAN, (BAN.c.deployment == CLIENT.c.deployment) & (BAN.c.client == CLIENT.c.client))
    .where(CLIENT.c.deployment == bindparam("of"))
    .order_by(CLIENT.c.client)
)


def deployment_row(connection: Connection, genesis: bytes, address: bytes) -> RowMapping | None:
    """Return the row of a deployment with its chain's, None if it is not indexed.

    Args:
        connection: to the index.
        genesis: hash of the chain's block 0.
        address: of the contract, 20 bytes.
    """
    found = connection.execute(_DEPLOYMENT, {"genesis": genesis, "address": address})
    return found.mappings().one_or_none()


def events_of(connection: Connection, deployment: int, number: int) -> Events:
    """Return what the chain holds of a round.

    Args:
        connection: to the index.
        deployment: its row.
        number: t.

    Raises:
        IndexDamagedError: the round is not there.
    """
    row = connection.execute(_ONE, {"of": deployment, "number": number}).one_or_none()
    if row is None:
        raise IndexDamagedError(
            f"the index lacks round {number} of a deployment that has it: drop it and build it "
            "again"
        )
    return _events(row, unpack_events(row.course))


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
    return _lines(connection.execute(_BETWEEN, bounds).all(), range(first, last + 1))


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
    rows = connection.execute(_SOME, {"of": deployment, "numbers": wanted}).all()
    return _lines(rows, wanted)


def _lines(rows: Sequence[Any], wanted: Sequence[int]) -> list[Events]:
    if [row.round for row in rows] != list(wanted):
        missing = sorted(set(wanted).difference(row.round for row in rows))
        raise IndexDamagedError(
            f"the index lacks round {missing[0]} of a deployment that has it: drop it and build "
            "it again"
        )
    return [_events(row, []) for row in rows]


def registry_of(connection: Connection, deployment: int) -> tuple[RegisteredClient, ...]:
    """Return the clients registered so far, with bans.

    Args:
        connection: to the index.
        deployment: its row.
    """
    rows = connection.execute(_CLIENTS, {"of": deployment})
    return tuple(
        RegisteredClient(Address(row.address), int(row.samples), row.round or 0) for row in rows
    )


def _events(row: Any, course: list[Recorded]) -> Events:
    opening, trainers = unpack_opening(row.opening)
    ended = None if row.ended is None else unpack_events(row.ended)[0]
    return Events(opening, course, ended, trainers, row.ended_time)
