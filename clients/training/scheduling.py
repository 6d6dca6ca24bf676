"""The order in which free workers take jobs: longest first, in pieces of decreasing size.

It affects the duration of a round, never an update.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Size of a piece as a fraction of a worker's share of the remaining cost: the others never wait for
# a late large piece, and small jobs are still sent many at a time.
_SHARE = 0.5


class JobQueue:
    """The jobs of one round that no worker has taken yet.

    Args:
        costs: of each job, in any unit.
        workers: number of workers.
        chunk: number of jobs that a worker prefers to take at once.
    """

    def __init__(self, costs: Sequence[int], workers: int, chunk: int) -> None:
        # Equal jobs stay in order, so repeated runs behave alike.
        self._remaining = deque(sorted(range(len(costs)), key=lambda job: (-costs[job], job)))
        self._costs = costs
        self._remaining_cost = sum(costs)
        self._workers = workers
        # A trainer of many clients at once takes whole chunks, as many as the other workers.
        pieces = workers * math.ceil(len(costs) / (workers * chunk))
        self._chunk = math.ceil(len(costs) / max(pieces, 1))

    def take(self) -> list[int]:
        """Return the indices of the jobs that a free worker does next; empty if none are left."""
        target_cost = _SHARE * self._remaining_cost / self._workers
        jobs: list[int] = []
        cost = 0
        while chunk := list(islice(self._remaining, self._chunk)):
            chunk_cost = sum(self._costs[job] for job in chunk)
            if jobs and cost + chunk_cost > target_cost:
                break
            jobs.extend(self._remaining.popleft() for _ in chunk)
            cost += chunk_cost
        self._remaining_cost -= cost
        return jobs
