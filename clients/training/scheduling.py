"""Which jobs a free worker takes next: the longest first, in pieces that get smaller.

Nothing of this shows in an update; it only says how long a round takes.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A piece is worth this part of what a worker's share of the rest is: no worker begins a piece that
# the others would have to wait for, and small jobs still travel many at a time.
_SHARE = 0.5


class JobQueue:
    """The jobs of one round that nobody has taken yet.

    Args:
        costs: what each job costs, in any unit.
        workers: how many take them.
        chunk: how many jobs a worker likes to take at once.
    """

    def __init__(self, costs: Sequence[int], workers: int, chunk: int) -> None:
        # Equal jobs stay in order: a run that is watched does the same every time.
        self._left = deque(sorted(range(len(costs)), key=lambda job: (-costs[job], job)))
        self._costs = costs
        self._cost_left = sum(costs)
        self._workers = workers
        # A trainer of many clients at once takes whole chunks, as many of them as its neighbours.
        pieces = workers * math.ceil(len(costs) / (workers * chunk))
        self._chunk = math.ceil(len(costs) / max(pieces, 1))

    def take(self) -> list[int]:
        """Return the indices of the jobs that a free worker does next; none if none are left."""
        worth = _SHARE * self._cost_left / self._workers
        taken: list[int] = []
        cost = 0
        while chunk := list(islice(self._left, self._chunk)):
            more = sum(self._costs[job] for job in chunk)
            if taken and cost + more > worth:
                break
            taken.extend(self._left.popleft() for _ in chunk)
            cost += more
        self._cost_left -= cost
        return taken
