"""One page of a walk over rounds, found by narrow rows: what does not match is not read.

A page looks at the same rounds as `ledger.history.pages.read_page` does, and so has the same
rounds, the same count and the same cursor: who walks may go from one to the other at any page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, or_, select

from ledger.history.pages import matches, window_of
from ledger.history.participation import RoundRole, ScoresOutcome, UpdateOutcome
from ledger.history.queries import EMPTY_PAGE
from ledger.history.status import AskedRole
from ledger.index.codes import OUTCOME, ROLE, SCORES, STATUS
from ledger.index.errors import IndexDamagedError
from ledger.index.queries import Query
from ledger.index.reading import LINE, events_of_line
from ledger.index.tables import PARTICIPATION, ROUND, TOLD

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table

    from ledger.history.pages import Window
    from ledger.history.queries import RoundPage, RoundQuery
    from ledger.history.round import Round
    from ledger.index.history import IndexedHistory

_OUTCOMES = {
    AskedRole.ACCEPTED: OUTCOME[UpdateOutcome.ACCEPTED],
    AskedRole.NOT_ACCEPTED: OUTCOME[UpdateOutcome.NOT_ACCEPTED],
    AskedRole.DROPPED_OUT: OUTCOME[UpdateOutcome.DROPPED_OUT],
    AskedRole.MEMBER: OUTCOME[None],
    AskedRole.SERVED: OUTCOME[None],
    AskedRole.VOTED: OUTCOME[None],
}
"""Members have no outcome, and so are found by it."""


def search_page(
    history: IndexedHistory, walk: RoundQuery, limit: int, cursor: str | None
) -> RoundPage:
    """Return one page of rounds.

    Args:
        history: of the deployment.
        walk: which rounds, in which order.
        limit: how many at most.
        cursor: where the page begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this walk's.
        IndexDamagedError: what the tables found does not match, or is not there.
    """
    window = window_of(history, walk, limit, cursor)
    if window is None:
        return EMPTY_PAGE
    if walk.matches_all:
        found = history.rounds(window.first, window.last)
    elif walk.role is AskedRole.REFUSED and walk.client is not None:
        # Whether scores were refused is the record's word, which may have come or gone since.
        found = [one for one in _lines(history, walk, window) if matches(history, walk, one)]
    else:
        found = _lines(history, walk, window, limit)
        _require_matching(history, walk, found)
    ordered = found[::-1] if window.is_descending else found
    return window.page(ordered[:limit], limit)


def _lines(
    history: IndexedHistory, walk: RoundQuery, window: Window, limit: int | None = None
) -> list[Round]:
    """Return the first rounds of a window that the tables find, ascending."""
    shape = _Shape.of(walk, window)
    values = {
        "of": history.row["id"],
        "by": walk.client,
        "status": None if walk.status is None else STATUS[walk.status],
        "view": walk.view_min,
        "since_block": walk.blocks.first,
        "until_block": walk.blocks.last,
        "since": walk.times.first,
        "until": walk.times.last,
        "first": window.first,
        "last": window.last,
        "most": limit or window.last - window.first + 1,
    }
    query, names = _query(shape)
    rows = query.rows(history.connection, {name: values[name] for name in names})
    ascending = rows[::-1] if window.is_descending else rows
    return history.lines(map(events_of_line, ascending))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a query asks about, whatever the values are."""

    role: AskedRole | None
    filters: tuple[str, ...]
    is_down: bool

    @staticmethod
    def of(walk: RoundQuery, window: Window) -> _Shape:
        """Return the shape of a page's query; without a client it asks for no role."""
        given = {
            "status": walk.status is not None,
            "view": walk.view_min > 0,
            "since_block": walk.blocks.first is not None,
            "until_block": walk.blocks.last is not None,
            "since": walk.times.first is not None,
            "until": walk.times.last is not None,
        }
        filters = tuple(name for name, is_given in given.items() if is_given)
        return _Shape(None if walk.client is None else walk.role, filters, window.is_descending)


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
    # Outer joins: a round that was found and is not told is an index that is damaged.
    tables = walked.outerjoin(TOLD, _same_round(walked, TOLD))
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


def _same_round(one: Table, other: Table) -> ColumnElement[bool]:
    return (other.c.deployment == one.c.deployment) & (other.c.round == one.c.round)


def _require_matching(history: IndexedHistory, walk: RoundQuery, found: list[Round]) -> None:
    """Accept rounds that match by what the events tell of them, which is kept apart from the rows.

    Raises:
        IndexDamagedError: one does not.
    """
    for one in found:
        if not matches(history, walk, one):
            raise IndexDamagedError(
                f"the index finds round {one.round} by a row that contradicts its events: drop it "
                "and build it again"
            )


def _of_role(role: AskedRole) -> list[Any]:
    columns = PARTICIPATION.c
    found: list[Any] = []
    if role in _OUTCOMES:
        found.append(columns.outcome == _OUTCOMES[role])
    match role:
        case AskedRole.TRAINED:
            found.append(columns.role == ROLE[RoundRole.TRAINER])
        case AskedRole.REFUSED:
            codes = (SCORES[ScoresOutcome.REFUSED], SCORES[ScoresOutcome.UNKNOWN])
            found.append(or_(*(columns.scores == code for code in codes)))
        case AskedRole.SERVED:
            found.append(columns.empty_seat.is_(False))
        case AskedRole.VOTED:
            found.append(columns.voted > 0)
        case _:
            pass
    return found
