"""One page of a walk over rounds, found by narrow rows: what does not match is not read.

A page looks at the same rounds as `ledger.history.pages.read_page` does, and so has the same
rounds, the same count and the same cursor: who walks may go from one to the other at any page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from ledger.history.pages import EMPTY, window_of
from ledger.history.participation import Outcome, Role, Scores
from ledger.history.status import AskedRole
from ledger.index.codes import OUTCOME, ROLE, SCORES, STATUS
from ledger.index.errors import IndexDamagedError
from ledger.index.tables import PARTICIPATION, ROUND

if TYPE_CHECKING:
    from ledger.history.pages import RoundPage, Span, Walk, Window
    from ledger.history.round import Round
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
        IndexDamagedError: what the tables found does not match, or is not there.
    """
    window = window_of(history, walk, limit, cursor)
    if window is None:
        return EMPTY
    if walk.is_of_all:
        found = history.rounds(window.first, window.last)
    elif walk.role is AskedRole.REFUSED and walk.client is not None:
        # Whether scores were refused is the record's word, which may have come or gone since.
        found = [one for one in _lines(history, walk, window) if walk.matches(history, one)]
    else:
        found = _lines(history, walk, window, limit)
        _require_matching(history, walk, found)
    ordered = found[::-1] if window.is_down else found
    return window.page(ordered[:limit], limit)


def _lines(
    history: IndexedHistory, walk: Walk, window: Window, limit: int | None = None
) -> list[Round]:
    """Return the first rounds of a window that the tables find, ascending."""
    numbers = _numbers(history, walk, window, limit)
    return history.some(numbers) if numbers else []


def _numbers(history: IndexedHistory, walk: Walk, window: Window, limit: int | None) -> list[int]:
    own = history.row["id"]
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
    chosen = chosen.where(column.between(window.first, window.last))
    chosen = chosen.order_by(column.desc() if window.is_down else column).limit(limit)
    return list(history.connection.execute(chosen).scalars())


def _require_matching(history: IndexedHistory, walk: Walk, found: list[Round]) -> None:
    """Accept rounds that match by what the events tell of them, which is kept apart from the rows.

    Raises:
        IndexDamagedError: one does not.
    """
    for one in found:
        if not walk.matches(history, one):
            raise IndexDamagedError(
                f"the index finds round {one.round} by a row that contradicts its events: drop it "
                "and build it again"
            )


def _of_rounds(walk: Walk) -> list[Any]:
    found: list[Any] = []
    if walk.status is not None:
        found.append(ROUND.c.status == STATUS[walk.status])
    if walk.view_min:
        found.append(ROUND.c.view >= walk.view_min)
    found += _within(ROUND.c.ended_block, walk.blocks)
    return found + _within(ROUND.c.ended_time, walk.times)


def _of_role(role: AskedRole) -> list[Any]:
    columns = PARTICIPATION.c
    found: list[Any] = []
    if role in _OUTCOMES:
        found.append(columns.outcome == _OUTCOMES[role])
    match role:
        case AskedRole.TRAINED:
            found.append(columns.role == ROLE[Role.TRAINER])
        case AskedRole.REFUSED:
            found.append(columns.scores.in_((SCORES[Scores.REFUSED], SCORES[Scores.UNKNOWN])))
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
