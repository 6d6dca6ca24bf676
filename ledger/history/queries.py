"""Queries for rounds, and the page that answers one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.history.status import AskedRole, Order, RoundStatus
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.history.round import HistoryRound


@dataclass(frozen=True, slots=True)
class Span:
    """A range with both ends included; None for no bound."""

    first: int | None = None
    last: int | None = None

    @property
    def is_unbounded(self) -> bool:
        """True without a bound."""
        return self.first is None and self.last is None

    def contains(self, value: int) -> bool:
        """Return whether a value is within the bounds."""
        too_low = self.first is not None and value < self.first
        return not too_low and (self.last is None or value <= self.last)


UNBOUNDED = Span()


@dataclass(frozen=True, slots=True)
class RoundQuery:
    """A query for rounds: filters and order.

    Attributes:
        listing: the endpoint, so that cursors of different ones do not mix.
        order: newest or oldest first.
        status: None for any.
        client: a participant; None for any.
        view_min: the least view, from 0, in which one of the phases was decided; 0 for any round.
        blocks: numbers of the block that ended the round; an open round matches no bound.
        times: of that block, in Unix seconds.
    """

    listing: str = "rounds"
    order: Order = Order.NEWEST
    status: RoundStatus | None = None
    client: ClientId | None = None
    role: AskedRole = AskedRole.ANY
    view_min: int = 0
    blocks: Span = UNBOUNDED
    times: Span = UNBOUNDED

    @property
    def matches_all(self) -> bool:
        """True if every round matches."""
        is_any = self.status is None and self.client is None and not self.view_min
        return is_any and self.blocks.is_unbounded and self.times.is_unbounded


@dataclass(frozen=True, slots=True)
class RoundPage:
    """One page of a list of rounds.

    Attributes:
        rounds: in the query's order, by their openings and ends.
        next_cursor: start of the next page; None after the last.
    """

    rounds: tuple[HistoryRound, ...]
    scanned: int
    next_cursor: str | None


EMPTY_PAGE = RoundPage((), 0, None)
"""The page of a deployment in which no round has opened."""
