"""One page of a walk over rounds, found by the tables' indexes: full while there is more.

It takes the cursors of `ledger.history.pages` and gives such, and finds the same rounds; it only
passes over what does not match without looking at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from ledger.history.cursors import decode_cursor, encode_cursor
from ledger.history.pages import RoundPage
from ledger.history.participation import Outcome, Role
from ledger.history.status import AskedRole, Order
from ledger.index.codes import OUTCOME, ROLE, STATUS
from ledger.index.tables import LATE_VIEW, PARTICIPATION, REFUSED, ROUND

if TYPE_CHECKING:
    from sqlalchemy import Select

    from ledger.history.pages import Span, Walk
    from ledger.index.history import IndexedHistory

_OUTCOMES = {
    AskedRole.ACCEPTED: OUTCOME[Outcome.ACCEPTED],
    AskedRole.NOT_ACCEPTED: OUTCOME[Outcome.NOT_ACCEPTED],
    AskedRole.DROPPED_OUT: OUTCOME[Outcome.DROPPED_OUT],
    AskedRole.MEMBER: OUTCOME[None],
    AskedRole.SERVED: OUTCOME[None],
    AskedRole.VOTED: OUTCOME[None],
}
"""Members have no outcome, and so are found by it."""


def search_page(history: IndexedHistory, walk: Walk, limit: int, cursor: str | None) -> RoundPage:
    """Return one page of rounds.

    Args:
        history: of the deployment.
        walk: which rounds, in which order.
        limit: how many at most.
        cursor: where the page begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this walk's.
        IndexStoreError: the index cannot be read.
    """
    newest, down = history.newest(), walk.order is Order.NEWEST
    start = newest if down else 1
    if cursor is not None:
        start = decode_cursor(cursor, walk.scope(history), newest, first=1)
    numbers = _numbers(history, walk, start, limit + 1)
    following = numbers[limit] if len(numbers) > limit else None
    found = history.some(numbers[:limit])
    if following is not None:
        scanned = abs(following - start)
    else:
        scanned = start if down else newest - start + 1
    onward = None if following is None else encode_cursor(following, walk.scope(history))
    return RoundPage(tuple(reversed(found) if down else found), scanned, onward)


def _numbers(history: IndexedHistory, walk: Walk, start: int, limit: int) -> list[int]:
    """Return the numbers of the first rounds that match, in the walk's order."""
    down, own = walk.order is Order.NEWEST, history.row["id"]
    of_rounds = _of_rounds(walk)
    if walk.client is None:
        column = ROUND.c.round
        chosen = select(column).where(ROUND.c.deployment == own, *of_rounds)
    else:
        column = PARTICIPATION.c.round
        chosen = select(column).where(
            PARTICIPATION.c.deployment == own,
            PARTICIPATION.c.client == walk.client,
            *_of_role(walk.role),
        )
        if of_rounds:
            same = (ROUND.c.deployment == own) & (ROUND.c.round == column)
            chosen = chosen.join(ROUND, same).where(*of_rounds)
    span = _span(history, walk)
    if span is not None:
        chosen = chosen.where(column.between(*span))
    chosen = chosen.where(column <= start if down else column >= start)
    chosen = chosen.order_by(column.desc() if down else column).limit(limit)
    return list(history.connection.execute(chosen).scalars())


def _of_rounds(walk: Walk) -> list[Any]:
    found: list[Any] = []
    if walk.status is not None:
        found.append(ROUND.c.status == STATUS[walk.status])
    if walk.view_min:
        found += [LATE_VIEW, ROUND.c.view >= walk.view_min]
    found += _within(ROUND.c.ended_block, walk.blocks) + _within(ROUND.c.ended_time, walk.times)
    return found


def _of_role(role: AskedRole) -> list[Any]:
    columns = PARTICIPATION.c
    found: list[Any] = []
    if role in _OUTCOMES:
        found.append(columns.outcome == _OUTCOMES[role])
    match role:
        case AskedRole.TRAINED:
            found.append(columns.role == ROLE[Role.TRAINER])
        case AskedRole.REFUSED:
            found.append(REFUSED)
        case AskedRole.SERVED:
            found.append(columns.empty_seat.is_(False))
        case AskedRole.VOTED:
            found.append(columns.voted > 0)
        case _:
            pass
    return found


def _within(column: Any, span: Span) -> list[Any]:
    found = []
    if span.first is not None:
        found.append(column >= span.first)
    if span.last is not None:
        found.append(column <= span.last)
    return found


def _span(history: IndexedHistory, walk: Walk) -> tuple[int, int] | None:
    """Return the first and the last round that ended within the walk's blocks or times.

    Later rounds end later, so that all that match lie between them; without this, the walk would
    begin at its own end of the history and go through all that lies before the span.
    """
    own, found = ROUND.c.deployment == history.row["id"], None
    for column, span in ((ROUND.c.ended_block, walk.blocks), (ROUND.c.ended_time, walk.times)):
        if span.is_whole:
            continue
        bounds: Select[Any] = select(func.min(ROUND.c.round), func.max(ROUND.c.round))
        first, last = history.connection.execute(bounds.where(own, *_within(column, span))).one()
        if first is None:
            return 1, 0
        found = (first, last) if found is None else (max(first, found[0]), min(last, found[1]))
    return found
