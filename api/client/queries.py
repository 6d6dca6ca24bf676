"""What may be asked of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.history.status import AskedRole, Order, RoundStatus

if TYPE_CHECKING:
    from api.client.connection import Asked

MOST_ENTRIES = 100
"""On one page."""


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page of a list.

    Attributes:
        limit: entries at most, up to 100.
        cursor: `next_cursor` of the page before; None for the first.
        order: which come first, where the list has an order to choose.
    """

    limit: int = 20
    cursor: str | None = None
    order: Order = Order.NEWEST

    def query(self) -> dict[str, Asked]:
        """Return it as a query, without the order."""
        return {"limit": self.limit, "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class RoundFilter:
    """Which rounds of a list; None where it does not matter.

    Attributes:
        status: how they stand.
        client: with this client.
        role: what the client was or did in them.
        view_min: decided in this view, from 0, or a later one.
        since_block: ended in this block or later.
        until_block: ended in this block or before.
        since: ended at this Unix time or later.
        until: ended at this Unix time or before.
    """

    status: RoundStatus | None = None
    client: int | None = None
    role: AskedRole | None = None
    view_min: int | None = None
    since_block: int | None = None
    until_block: int | None = None
    since: int | None = None
    until: int | None = None

    def query(self) -> dict[str, Asked]:
        """Return it as a query."""
        return {
            "status": self.status,
            "client": self.client,
            "role": self.role,
            "view_min": self.view_min,
            "since_block": self.since_block,
            "until_block": self.until_block,
            "since": self.since,
            "until": self.until,
        }


FIRST_PAGE = Paging()
ALL_ROUNDS = RoundFilter()
