"""One page of a walk over rounds, in either direction, with bounded work.

A filter may match rarely, so a page looks at `SCANNED` rounds at most, fewer with many clients,
and may be short of its limit while the walk goes on. A round is a position by its number: rounds
that open or end during a walk neither repeat nor hide one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from api.answers.outcomes import newest_round, read_outcomes
from api.http.paging import decode_cursor, encode_cursor

if TYPE_CHECKING:
    from api.answers.outcomes import Outcome, Role
    from api.deployments import Served
    from api.schemas.words import Status

SCANNED = 200
_DRAWN = 200_000  # clients whose keys one page may draw, to know who was sampled
Order = Literal["newest", "oldest"]


@dataclass(frozen=True, slots=True)
class Walk:
    """Which rounds are looked for.

    Attributes:
        what: the endpoint, so that cursors of different ones do not mix.
        order: newest or oldest first.
        status: how the round stands; None for any.
        client: who took part; None for any.
        role: as what.
    """

    what: str
    order: Order
    status: Status | None = None
    client: int | None = None
    role: Role = "any"

    def scope(self, served: Served) -> str:
        """Return what a cursor is bound to."""
        asked = (self.what, served.manifest.address, self.order, self.status, self.client)
        return repr((*asked, self.role))

    def matches(self, outcome: Outcome, served: Served) -> bool:
        """Say whether a round is looked for."""
        if self.status is not None and outcome.status != self.status:
            return False
        return self.client is None or outcome.is_role_of(self.client, self.role, served)

    def width(self, limit: int, clients: int) -> int:
        """Return how many rounds one page looks at.

        Args:
            limit: how many it may hold.
            clients: K; who was sampled costs a draw for each of them.
        """
        if self.client is not None and self.role in {"any", "trained"}:
            return max(1, min(SCANNED, _DRAWN // clients))
        return limit if self.status is None and self.client is None else SCANNED


@dataclass(frozen=True, slots=True)
class Found:
    """What one page holds.

    Attributes:
        outcomes: the rounds, in the walk's order.
        scanned: how many were looked at.
        next_cursor: where the next page begins; None after the last.
    """

    outcomes: tuple[Outcome, ...]
    scanned: int
    next_cursor: str | None


def read_page(served: Served, walk: Walk, limit: int, cursor: str | None, to_block: int) -> Found:
    """Return one page of rounds.

    Args:
        served: the deployment.
        walk: which rounds, in which order.
        limit: how many at most.
        cursor: where the page begins; None for the beginning.
        to_block: last block that is read.

    Returns:
        The page.

    Raises:
        ProblemError: the cursor is not one of this walk's.
    """
    newest = newest_round(served, to_block)
    down = walk.order == "newest"
    start = newest if down else 1
    if cursor is not None:
        start = decode_cursor(cursor, walk.scope(served), newest, first=1)
    if newest == 0:
        return Found((), 0, None)
    width = walk.width(limit, served.sizes.clients)
    end = max(1, start - width + 1) if down else min(newest, start + width - 1)
    outcomes = read_outcomes(served, min(start, end), max(start, end), to_block)
    found: list[Outcome] = []
    scanned = 0
    for outcome in reversed(outcomes) if down else outcomes:
        if len(found) == limit:
            break
        scanned += 1
        if walk.matches(outcome, served):
            found.append(outcome)
    following = start - scanned if down else start + scanned
    goes_on = 1 <= following <= newest
    onward = encode_cursor(following, walk.scope(served)) if goes_on else None
    return Found(tuple(found), scanned, onward)
