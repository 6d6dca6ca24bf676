"""`shards`: clients with few classes each (McMahan et al., 2017, arXiv 1602.05629)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from clients.datasets.partition.division import (
    Division,
    Partition,
    require_classes,
    require_enough,
)
from clients.datasets.records import PooledData
from clients.datasets.settings_table import Count


class ShardsPartition(Partition):
    """The samples by class, cut into K times `shards` parts; each client gets `shards` of them."""

    name: Literal["shards"] = "shards"
    shards: Count = 2

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client."""
        require_classes(pool, self.name)
        require_enough(len(pool.train), clients, self.shards)
        shuffled = rng.permutation(pool.train)
        by_class = shuffled[np.argsort(pool.y[shuffled], kind="stable")]
        parts = np.array_split(by_class, clients * self.shards)
        dealt = rng.permutation(len(parts)).reshape(clients, self.shards)
        return Division(
            tuple(np.sort(np.concatenate([parts[part] for part in hand])) for hand in dealt)
        )
