"""One page of a walk over rounds, in either direction, with bounded work.

A filter may match rarely, so a page looks at `SCANNED` rounds at most, fewer with many clients,
and may be short of its limit while the walk goes on. A round is a position by its number: rounds
that open or end during a walk neither repeat nor hide one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ledger.history.cursors import decode_cursor, encode_cursor
from ledger.history.documents import NO_DOCUMENTS
from ledger.history.participation import ScoresOutcome, participation_of
from ledger.history.status import AskedRole, Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.history.round import Round
    from ledger.history.source import HistorySource
    from ledger.history.status import RoundStatus
    from ledger.protocol.types import ClientId

SCANNED = 200
_DRAWN = 200_000  # clients whose keys one page may draw, to know who was sampled


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where, both included; None for no bound."""

    first: int | None = None
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether there is no bound."""
        return self.first is None and self.last is None

    def holds(self, value: int) -> bool:
        """Say whether a value lies within."""
        too_low = self.first is not None and value < self.first
        return not too_low and (self.last is None or value <= self.last)


EVERYWHERE = Span()


@dataclass(frozen=True, slots=True)
class Walk:
    """Which rounds are looked for.

    Attributes:
        what: the endpoint, so that cursors of different ones do not mix.
        order: newest or oldest first.
        status: how the round stands; None for any.
        client: who took part; None for any.
        role: what it was or did.
        view_min: the least view, from 0, in which one of the phases was decided; 0 for any round.
        blocks: numbers of the block that ended the round; a round that is open lies nowhere.
        times: of that block, in Unix seconds.
    """

    what: str
    order: Order = Order.NEWEST
    status: RoundStatus | None = None
    client: ClientId | None = None
    role: AskedRole = AskedRole.ANY
    view_min: int = 0
    blocks: Span = EVERYWHERE
    times: Span = EVERYWHERE

    def scope(self, history: HistorySource) -> str:
        """Return what a cursor is bound to."""
        status = None if self.status is None else self.status.value
        asked = (self.what, str(history.path), self.order.value, status, self.client)
        spans = (self.blocks.first, self.blocks.last, self.times.first, self.times.last)
        return repr((*asked, self.role.value, self.view_min, *spans))

    def matches(self, history: HistorySource, one: Round) -> bool:
        """Say whether a round is looked for.

        Args:
            history: of the deployment.
            one: the round, by its opening and its end.
        """
        if self.status is not None and one.status is not self.status:
            return False
        if self.view_min and (one.decided is None or max(one.decided.views) < self.view_min):
            return False
        if not self._lies_within(history, one):
            return False
        return self.client is None or has_role(history, one, self.client, self.role)

    def width(self, limit: int, clients: int) -> int:
        """Return how many rounds one page looks at.

        Args:
            limit: how many it may hold.
            clients: K; who was sampled costs a draw for each of them.
        """
        if self.client is not None and self.role in _DRAWING:
            return max(1, min(SCANNED, _DRAWN // clients))
        return limit if self.is_of_all else SCANNED

    @property
    def is_of_all(self) -> bool:
        """Whether every round matches."""
        nobody = self.status is None and self.client is None and not self.view_min
        return nobody and self.blocks.is_whole and self.times.is_whole

    def _lies_within(self, history: HistorySource, one: Round) -> bool:
        if self.blocks.is_whole and self.times.is_whole:
            return True
        if one.ended is None or not self.blocks.holds(one.ended.block_number):
            return False
        return self.times.is_whole or self.times.holds(history.time_of(one.ended.block_number))


_DRAWING = frozenset({AskedRole.ANY, AskedRole.TRAINED, AskedRole.DROPPED_OUT})
"""Roles for which it must be known who was sampled."""


def has_role(history: HistorySource, one: Round, client: ClientId, role: AskedRole) -> bool:
    """Say whether a client was or did something in a round; the words are those of `Participation`.

    Args:
        history: of the deployment.
        one: the round.
        client: its index.
        role: what; "any" is a trainer or a member.
    """
    match role:
        case AskedRole.ANY:
            return client in one.committee or client in one.trainers
        case AskedRole.TRAINED:
            return client not in one.committee and client in one.trainers
        case AskedRole.DROPPED_OUT:
            dropped = one.decided is not None and client not in one.places
            return dropped and client not in one.committee and client in one.trainers
        case AskedRole.ACCEPTED:
            return one.decided is not None and client in one.decided.accepted
        case AskedRole.NOT_ACCEPTED:
            accepted = one.decided.accepted if one.decided else ()
            return client in one.places and client not in accepted
        case AskedRole.MEMBER:
            return client in one.committee
        case AskedRole.SERVED | AskedRole.VOTED | AskedRole.REFUSED:
            return client in one.committee and _did(history, one, client, role)


def _did(history: HistorySource, one: Round, member: ClientId, role: AskedRole) -> bool:
    """Say whether a member served, voted, or had its scores refused."""
    documents = history.documents(one) if role is AskedRole.REFUSED else NO_DOCUMENTS
    part = participation_of(one, documents, member)
    if part is None:
        return False
    if role is AskedRole.SERVED:
        return part.served
    return bool(part.voted) if role is AskedRole.VOTED else part.scores is ScoresOutcome.REFUSED


@dataclass(frozen=True, slots=True)
class RoundPage:
    """What one page holds.

    Attributes:
        rounds: in the walk's order, by their openings and ends.
        scanned: how many were looked at.
        next_cursor: where the next page begins; None after the last.
    """

    rounds: tuple[Round, ...]
    scanned: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """The rounds that one page looks at, at most.

    Attributes:
        start: the first of them in the walk's order.
        end: the last.
        newest: the newest round that has opened, at least 1.
        scope: what a cursor is bound to.
        is_down: whether the walk goes from newer rounds to older ones.
    """

    start: int
    end: int
    newest: int
    scope: str
    is_down: bool

    @property
    def first(self) -> int:
        """The least number among them."""
        return min(self.start, self.end)

    @property
    def last(self) -> int:
        """The greatest."""
        return max(self.start, self.end)

    def page(self, found: Sequence[Round], limit: int) -> RoundPage:
        """Return the page of the rounds that were found in it.

        Args:
            found: the first that match, in the walk's order, no more than fit.
            limit: how many fit; nothing behind the last that fits was looked at.
        """
        until = found[-1].round if found and len(found) == limit else self.end
        following = until - 1 if self.is_down else until + 1
        goes_on = 1 <= following <= self.newest
        onward = encode_cursor(following, self.scope) if goes_on else None
        return RoundPage(tuple(found), abs(until - self.start) + 1, onward)


EMPTY = RoundPage((), 0, None)
"""The page of a deployment in which no round has opened."""


def window_of(history: HistorySource, walk: Walk, limit: int, cursor: str | None) -> Window | None:
    """Return which rounds a page looks at; None if none has opened.

    Args:
        history: of the deployment.
        walk: which rounds, in which order.
        limit: how many the page holds at most.
        cursor: where it begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this walk's.
    """
    newest, is_down = history.newest(), walk.order is Order.NEWEST
    scope = walk.scope(history)
    start = newest if is_down else 1
    if cursor is not None:
        start = decode_cursor(cursor, scope, newest, first=1)
    if newest == 0:
        return None
    width = walk.width(limit, history.fixed.clients)
    end = max(1, start - width + 1) if is_down else min(newest, start + width - 1)
    return Window(start, end, newest, scope, is_down)


def read_page(history: HistorySource, walk: Walk, limit: int, cursor: str | None) -> RoundPage:
    """Return one page of rounds, each of which is looked at.

    Args:
        history: of the deployment.
        walk: which rounds, in which order.
        limit: how many at most.
        cursor: where the page begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this walk's.
        ChainError: the rounds cannot be read.
    """
    window = window_of(history, walk, limit, cursor)
    if window is None:
        return EMPTY
    read = history.rounds(window.first, window.last)
    matching = (one for one in _in_order(read, window) if walk.matches(history, one))
    return window.page(list(islice(matching, limit)), limit)


def _in_order(rounds: list[Round], window: Window) -> Iterable[Round]:
    return reversed(rounds) if window.is_down else rounds
