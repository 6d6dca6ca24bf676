"""What the index holds of clients: their parts in rounds, and their counts over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from ledger.history.participation import ParticipationCounts
from ledger.index.queries import Query
from ledger.index.rows import COUNTED
from ledger.index.tables import COUNTS, PARTICIPATION, ROUND

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ledger.protocol.types import ClientId

_COUNTS = Query(
    select(*(COUNTS.c[name] for name in COUNTED))
    .where(COUNTS.c.deployment == bindparam("of"))
    .order_by(COUNTS.c.client)
)
_PARTS = Query(
    select(PARTICIPATION, ROUND.c.record, ROUND.c.incidents)
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


def parts_between(
    connection: Connection, deployment: int, client: ClientId, first: int, last: int
) -> dict[int, dict[str, Any]]:
    """Return a client's parts in a range of rounds by their numbers, with how documents stand.

    Args:
        connection: to the index.
        deployment: its row.
        client: its index.
        first: the first round.
        last: the last round.
    """
    asked = {"of": deployment, "by": client, "first": first, "last": last}
    return {row["round"]: row for row in _PARTS.mappings(connection, asked)}


def counts_of(connection: Connection, deployment: int) -> list[ParticipationCounts]:
    """Return the counts of all clients that are registered, by their indices.

    Args:
        connection: to the index.
        deployment: its row.
    """
    return [ParticipationCounts(*row) for row in _COUNTS.rows(connection, {"of": deployment})]
