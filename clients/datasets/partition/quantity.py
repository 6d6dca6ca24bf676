"""`quantity`: clients with the same mixture, but unequally many samples."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from clients.datasets.options import (  # noqa: TC001 - pydantic reads them
    Count,
    Positive,
)
from clients.datasets.partition.division import (
    Division,
    Partition,
    cut_points,
    level_up,
    require_enough,
    require_positive,
)

if TYPE_CHECKING:
    from clients.datasets.records import PooledData


class QuantityPartition(Partition):
    """The samples in random order, cut by shares drawn from Dirichlet(alpha, ..., alpha)."""

    name: Literal["quantity"] = "quantity"
    alpha: Positive = 0.5
    minimum: Count = 1

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return which rows each client holds; nobody fewer than the minimum."""
        require_positive(self.alpha)
        require_enough(len(pool.train), clients, self.minimum)
        order = rng.permutation(pool.train)
        bounds = cut_points(rng.dirichlet(np.full(clients, self.alpha)), len(order))
        shares = [order[start:stop].tolist() for start, stop in pairwise(bounds)]
        level_up(shares, self.minimum)
        return Division(tuple(np.array(sorted(share), dtype=np.int64) for share in shares))
