"""`iid`: clients with the same mixture, and numbers of samples that differ by at most one."""

from __future__ import annotations

from typing import Literal

import numpy as np

from clients.datasets.partition.division import Division, Partition, require_enough
from clients.datasets.records import PooledData


class IidPartition(Partition):
    """The training samples in random order, cut into equal parts."""

    name: Literal["iid"] = "iid"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client."""
        require_enough(len(pool.train), clients)
        parts = np.array_split(rng.permutation(pool.train), clients)
        return Division(tuple(np.sort(part) for part in parts))
