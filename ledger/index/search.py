"""Searches for rounds by narrow columns; documents of other rounds are not read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, or_, select

from ledger.history.participation import RoundRole, ScoresOutcome, UpdateOutcome
from ledger.history.status import AskedRole
from ledger.index.codes import OUTCOME_CODES, ROLE_CODES, SCORES_CODES, STATUS_CODES
from ledger.index.queries import Query
from ledger.index.reading import LINE, events_of_line
from ledger.index.schema import PARTICIPATION, ROUND, ROUND_EVENTS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from ledger.history.pages import Window
    from ledger.history.queries import RoundQuery
    from ledger.index.row_documents import RoundEvents

_OUTCOMES = {
    AskedRole.ACCEPTED: OUTCOME_CODES[UpdateOutcome.ACCEPTED],
    AskedRole.NOT_ACCEPTED: OUTCOME_CODES[UpdateOutcome.NOT_ACCEPTED],
    AskedRole.DROPPED_OUT: OUTCOME_CODES[UpdateOutcome.DROPPED_OUT],
    AskedRole.MEMBER: OUTCOME_CODES[None],
    AskedRole.SERVED: OUTCOME_CODES[None],
    AskedRole.VOTED: OUTCOME_CODES[None],
}
"""Members have no outcome, and so are found by it."""


def matching_rounds(
    connection: Connection,
    deployment: int,
    query: RoundQuery,
    window: Window,
    limit: int | None = None,
) -> list[RoundEvents]:
    """Return the first rounds of a window that the columns match, ascending.

    Args:
        connection: to the index.
        deployment: its row.
        query: which rounds, in which order.
        window: the rounds that are scanned.
        limit: how many at most; None for all.
    """
    values = {
        "of": deployment,
        "by": query.client,
        "status": None if query.status is None else STATUS_CODES[query.status],
        "view": query.view_min,
        "since_block": query.blocks.first,
        "until_block": query.blocks.last,
        "since": query.times.first,
        "until": query.times.last,
        "first": window.first,
        "last": window.last,
        "most": limit or window.last - window.first + 1,
    }
    statement, names = _query(_Shape.of(query, window))
    rows = statement.rows(connection, {name: values[name] for name in names})
    ascending = rows[::-1] if window.is_descending else rows
    return [events_of_line(row) for row in ascending]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The conditions of a query, without their values."""

    role: AskedRole | None
    filters: tuple[str, ...]
    is_down: bool

    @staticmethod
    def of(query: RoundQuery, window: Window) -> _Shape:
        """Return the shape of a page's query; without a client it has no role."""
        is_set = {
            "status": query.status is not None,
            "view": query.view_min > 0,
            "since_block": query.blocks.first is not None,
            "until_block": query.blocks.last is not None,
            "since": query.times.first is not None,
            "until": query.times.last is not None,
        }
        filters = tuple(name for name in is_set if is_set[name])
        return _Shape(None if query.client is None else query.role, filters, window.is_descending)


_CONDITIONS: dict[str, Any] = {
    "status": ROUND.c.status == bindparam("status"),
    "view": ROUND.c.view >= bindparam("view"),
    "since_block": ROUND.c.ended_block >= bindparam("since_block"),
    "until_block": ROUND.c.ended_block <= bindparam("until_block"),
    "since": ROUND.c.ended_time >= bindparam("since"),
    "until": ROUND.c.ended_time <= bindparam("until"),
}


@lru_cache(maxsize=512)
def _query(shape: _Shape) -> tuple[Query, tuple[str, ...]]:
    """Return the query of a shape, and the names of its values."""
    walked = ROUND if shape.role is None else PARTICIPATION
    column = walked.c.round
    # Outer joins: a round that is found and has no events means that the index is damaged.
    tables = walked.outerjoin(ROUND_EVENTS, _same_round(walked, ROUND_EVENTS))
    names = ("of", "first", "last", "most", *shape.filters)
    conditions = [_CONDITIONS[name] for name in shape.filters]
    if shape.role is not None:
        tables = tables.outerjoin(ROUND, _same_round(walked, ROUND))
        conditions += [walked.c.client == bindparam("by"), *_of_role(shape.role)]
        names = (*names, "by")
    chosen = select(column, *LINE[1:]).select_from(tables)
    within = column.between(bindparam("first"), bindparam("last"))
    chosen = chosen.where(walked.c.deployment == bindparam("of"), within, *conditions)
    ordered = chosen.order_by(column.desc() if shape.is_down else column)
    outer = tuple(column.name for column in LINE[1:])
    return Query(ordered.limit(bindparam("most")), optional=outer), names


def _same_round(table: Table, other: Table) -> ColumnElement[bool]:
    return (other.c.deployment == table.c.deployment) & (other.c.round == table.c.round)


def _of_role(role: AskedRole) -> list[Any]:
    columns = PARTICIPATION.c
    conditions: list[Any] = []
    if role in _OUTCOMES:
        conditions.append(columns.outcome == _OUTCOMES[role])
    match role:
        case AskedRole.TRAINED:
            conditions.append(columns.role == ROLE_CODES[RoundRole.TRAINER])
        case AskedRole.REFUSED:
            codes = SCORES_CODES[ScoresOutcome.REFUSED], SCORES_CODES[ScoresOutcome.UNKNOWN]
            conditions.append(or_(*(columns.scores == code for code in codes)))
        case AskedRole.SERVED:
            conditions.append(columns.empty_seat.is_(False))
        case AskedRole.VOTED:
            conditions.append(columns.voted > 0)
        case _:
            pass
    return conditions
