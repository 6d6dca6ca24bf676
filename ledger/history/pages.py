"""One page of a list of rounds, in either direction, with bounded work; and its opaque cursor.

A filter may match rarely, so a page examines `MAX_SCANNED` rounds at most, fewer with many clients,
and may be short of its limit while the list goes on. A position is a round's number: rounds that
open or end between two pages neither repeat nor hide one.

A cursor is base64url of version, position and a checksum over both and the query's scope. The
checksum is no secret: it detects a cursor that was cut, altered or used for another query by
accident. A forged cursor reaches nothing: the query checks its own bounds again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ledger.history.documents import NO_DOCUMENTS
from ledger.history.participation import ScoresOutcome, participation_of
from ledger.history.queries import EMPTY_PAGE, RoundPage, RoundQuery
from ledger.history.status import AskedRole, Order
from ledger.protocol.errors import CmflError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound

VERSION = 1
MAX_CURSOR = 64
_CHECKSUM_BYTES = 12
_HEAD = struct.Struct(">BI")


class CursorError(CmflError):
    """A cursor that does not belong to its query."""


def encode_cursor(position: int, scope: str) -> str:
    """Return a cursor as text for a URL; the position is below 2³²."""
    head = _HEAD.pack(VERSION, position)
    checksum = hashlib.sha256(head + scope.encode()).digest()[:_CHECKSUM_BYTES]
    return base64.urlsafe_b64encode(head + checksum).rstrip(b"=").decode()


def decode_cursor(cursor: str, scope: str, last: int, first: int = 0) -> int:
    """Return the position behind a cursor.

    Args:
        first: the least position.
    """
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        version, position = _HEAD.unpack_from(data)
    except (ValueError, binascii.Error, struct.error) as error:
        raise CursorError("it is cut or altered") from error
    if version != VERSION or encode_cursor(position, scope) != cursor:
        raise CursorError("it is altered, or of another query or version")
    if not first <= position <= last:
        raise CursorError("it points to nothing that is there")
    return int(position)


MAX_SCANNED = 200
_MAX_DRAWN = 200_000  # clients whose keys one page may draw, to know the sampled ones
_NEEDS_DRAW = frozenset({AskedRole.ANY, AskedRole.TRAINED, AskedRole.DROPPED_OUT})
"""Roles for which the sampled clients must be drawn."""


@dataclass(frozen=True, slots=True)
class Window:
    """The rounds that one page examines, at most.

    Attributes:
        start: the first of them in the query's order.
        newest: the newest round that has opened, at least 1.
    """

    start: int
    end: int
    newest: int
    scope: str
    is_descending: bool

    @property
    def first(self) -> int:
        """The least number among them."""
        return min(self.start, self.end)

    @property
    def last(self) -> int:
        """The greatest number among them."""
        return max(self.start, self.end)

    def page(self, matching: Sequence[HistoryRound], limit: int) -> RoundPage:
        """Return the page of the matching rounds.

        Args:
            matching: the first that match, in the query's order, no more than fit.
            limit: how many fit; nothing behind the last that fits was examined.
        """
        until = matching[-1].round if matching and len(matching) == limit else self.end
        following = until - 1 if self.is_descending else until + 1
        has_more = 1 <= following <= self.newest
        cursor = encode_cursor(following, self.scope) if has_more else None
        return RoundPage(tuple(matching), abs(until - self.start) + 1, cursor)


def window_of(
    history: FoldedHistory, query: RoundQuery, limit: int, cursor: str | None
) -> Window | None:
    """Return the rounds that a page examines; None if none has opened."""
    newest, is_descending = history.newest(), query.order is Order.NEWEST
    scope = _scope(history, query)
    start = newest if is_descending else 1
    if cursor is not None:
        start = decode_cursor(cursor, scope, newest, first=1)
    if newest == 0:
        return None
    width = page_width(query, limit, history.fixed.clients)
    end = max(1, start - width + 1) if is_descending else min(newest, start + width - 1)
    return Window(start, end, newest, scope, is_descending)


def page_width(query: RoundQuery, limit: int, clients: int) -> int:
    """Return how many rounds a page of `limit` entries examines, with K clients to draw from."""
    if query.client is not None and query.role in _NEEDS_DRAW:
        return max(1, min(MAX_SCANNED, _MAX_DRAWN // clients))
    return limit if query.matches_all else MAX_SCANNED


def read_page(
    history: FoldedHistory, query: RoundQuery, limit: int, cursor: str | None
) -> RoundPage:
    """Return one page of rounds by examining each of its window."""
    window = window_of(history, query, limit, cursor)
    if window is None:
        return EMPTY_PAGE
    rounds = history.rounds(window.first, window.last)
    ordered: Iterable[HistoryRound] = reversed(rounds) if window.is_descending else rounds
    matching = (round_ for round_ in ordered if matches(history, query, round_))
    return window.page(list(islice(matching, limit)), limit)


def matches(history: FoldedHistory, query: RoundQuery, round_: HistoryRound) -> bool:
    """Return whether a round, known by its opening and its end, matches a query."""
    if query.status is not None and round_.status is not query.status:
        return False
    decided = round_.decided
    if query.view_min and (decided is None or max(decided.views) < query.view_min):
        return False
    if not _ended_within(history, query, round_):
        return False
    return query.client is None or has_role(history, round_, query.client, query.role)


def _scope(history: FoldedHistory, query: RoundQuery) -> str:
    """Return what a cursor is bound to."""
    status = None if query.status is None else query.status.value
    subject = (query.listing, str(history.path), query.order.value, status, query.client)
    spans = (query.blocks.first, query.blocks.last, query.times.first, query.times.last)
    return repr((*subject, query.role.value, query.view_min, *spans))


def _ended_within(history: FoldedHistory, query: RoundQuery, round_: HistoryRound) -> bool:
    if query.blocks.is_unbounded and query.times.is_unbounded:
        return True
    if round_.ended is None or not query.blocks.contains(round_.ended.block_number):
        return False
    return query.times.is_unbounded or query.times.contains(
        history.time_of(round_.ended.block_number)
    )


def has_role(
    history: FoldedHistory, round_: HistoryRound, client: ClientId, role: AskedRole
) -> bool:
    """Return whether a client was or did something in a round; see `Participation` for the terms.

    Args:
        role: "any" is a trainer or a member.
    """
    match role:
        case AskedRole.ANY:
            return client in round_.committee or client in round_.trainers
        case AskedRole.TRAINED:
            return client not in round_.committee and client in round_.trainers
        case AskedRole.DROPPED_OUT:
            is_trainer = client not in round_.committee and client in round_.trainers
            return is_trainer and round_.decided is not None and client not in round_.places
        case AskedRole.ACCEPTED:
            return round_.decided is not None and client in round_.decided.accepted
        case AskedRole.NOT_ACCEPTED:
            accepted = round_.decided.accepted if round_.decided else ()
            return client in round_.places and client not in accepted
        case AskedRole.MEMBER:
            return client in round_.committee
        case AskedRole.SERVED | AskedRole.VOTED | AskedRole.REFUSED:
            return client in round_.committee and _fulfilled(history, round_, client, role)


def _fulfilled(
    history: FoldedHistory, round_: HistoryRound, member: ClientId, role: AskedRole
) -> bool:
    """Return whether a member served, voted, or had its scores refused."""
    documents = history.documents(round_) if role is AskedRole.REFUSED else NO_DOCUMENTS
    part = participation_of(round_, documents, member)
    if part is None:
        return False
    if role is AskedRole.SERVED:
        return part.served
    return bool(part.voted) if role is AskedRole.VOTED else part.scores is ScoresOutcome.REFUSED
