"""`dirichlet`: clients with different class mixtures (Hsu et al., 2019, arXiv 1909.06335)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import numpy as np

from clients.datasets.federated_data import Labels
from clients.datasets.partition.division import (
    Division,
    DrawnShares,
    cut_points,
    level_up,
    require_classes,
    require_enough,
)
from clients.datasets.records import Indices, PooledData
from ledger.protocol.errors import ConfigurationError


class DirichletPartition(DrawnShares):
    """Each class is divided by shares drawn from Dirichlet(alpha, ..., alpha)."""

    name: Literal["dirichlet"] = "dirichlet"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client; see `dirichlet_shares`."""
        require_classes(pool, self.name)
        shares = dirichlet_shares(pool.y[pool.train], clients, self.alpha, rng, self.minimum)
        return Division(tuple(pool.train[share] for share in shares))


def dirichlet_shares(
    labels: Labels,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    minimum: int = 1,
) -> tuple[Indices, ...]:
    """Return the samples of each client; every sample goes to exactly one.

    A small alpha gives a class to few clients, a large one divides it evenly. Clients with fewer
    than `minimum` samples then take one at a time from the client with most.

    Args:
        labels: class of every sample, shape (N,).
        clients: number of clients K, at least 1.
        alpha: concentration of the Dirichlet distribution, above 0.
        rng: the partition's own random stream.
        minimum: least number of samples per client.

    Returns:
        K ascending arrays of sample indices, client i's at index i.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigurationError(f"data.partition.alpha = {alpha}: must be finite and above 0")
    require_enough(len(labels), clients, minimum)
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        bounds = cut_points(rng.dirichlet(np.full(clients, alpha)), len(members))
        for share, (start, stop) in zip(shares, pairwise(bounds), strict=True):
            share.extend(members[start:stop].tolist())
    level_up(shares, minimum)
    return tuple(np.array(sorted(share), dtype=np.int64) for share in shares)
