"""`quantity`: clients with the same mixture, but different numbers of samples."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from clients.datasets.partition.division import (
    Division,
    DrawnShares,
    cut_points,
    level_up,
    require_enough,
)
from clients.datasets.records import PooledData
from ledger.protocol.errors import ConfigurationError

MAX_SHARES = 1_000


def _below_one(shares: list[float] | None) -> list[float] | None:
    if shares is not None and sum(shares) >= 1:
        raise ValueError(f"sum to {sum(shares):g}: must be below 1, for the other clients")
    return shares


class QuantityPartition(DrawnShares):
    """The samples in random order, cut by shares drawn from Dirichlet(alpha, ..., alpha).

    Attributes:
        shares: of all samples, of the first clients; the others' are drawn, of what is left.
    """

    name: Literal["quantity"] = "quantity"
    shares: (
        Annotated[
            list[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]],
            Field(min_length=1, max_length=MAX_SHARES),
            AfterValidator(_below_one),
        ]
        | None
    ) = None

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client, at least the minimum."""
        require_enough(len(pool.train), clients, self.minimum)
        given = self.shares or []
        if len(given) >= clients:
            raise ConfigurationError(
                f"data.partition.shares: {len(given)} of them; must be fewer than the {clients} "
                f"clients"
            )
        order = rng.permutation(pool.train)
        drawn = rng.dirichlet(np.full(clients - len(given), self.alpha)) * (1 - sum(given))
        bounds = cut_points(np.array([*given, *drawn]), len(order))
        shares = [order[start:stop].tolist() for start, stop in pairwise(bounds)]
        level_up(shares, self.minimum)
        return Division(tuple(np.array(sorted(share), dtype=np.int64) for share in shares))
