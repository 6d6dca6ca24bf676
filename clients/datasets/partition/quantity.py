"""`quantity`: clients with the same mixture, but different numbers of samples."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from clients.datasets.partition.division import (
    Division,
    DrawnShares,
    cut_points,
    level_up,
    require_enough,
)

if TYPE_CHECKING:
    from clients.datasets.records import PooledData


class QuantityPartition(DrawnShares):
    """The samples in random order, cut by shares drawn from Dirichlet(alpha, ..., alpha)."""

    name: Literal["quantity"] = "quantity"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client, at least the minimum."""
        require_enough(len(pool.train), clients, self.minimum)
        order = rng.permutation(pool.train)
        bounds = cut_points(rng.dirichlet(np.full(clients, self.alpha)), len(order))
        shares = [order[start:stop].tolist() for start, stop in pairwise(bounds)]
        level_up(shares, self.minimum)
        return Division(tuple(np.array(sorted(share), dtype=np.int64) for share in shares))
