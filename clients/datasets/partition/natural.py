"""`natural`: each client is one writer, role or account, with its own test samples."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clients.datasets.partition.division import Division, Partition
from clients.datasets.records import Indices, PooledData, require_trained
from ledger.protocol.errors import ConfigurationError


class NaturalPartition(Partition):
    """K random owners, numbered in their own order, with their own split."""

    name: Literal["natural"] = "natural"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each drawn owner; a test may be empty."""
        if pool.owner is None:
            raise ConfigurationError(
                f"data.partition.name = 'natural': {pool.source} has no natural clients"
            )
        if not 1 <= clients <= len(pool.owners):
            raise ConfigurationError(
                f"protocol.clients = {clients}: more clients than data: {clients} clients, but "
                f"{pool.source} has {len(pool.owners)} {pool.owned_by}"
                if clients > len(pool.owners)
                else f"protocol.clients = {clients}: at least 1 is needed"
            )
        counts = np.bincount(pool.owner[pool.train], minlength=len(pool.owners))
        require_trained(counts, pool.owners, pool.owned_by, pool.source)
        chosen = np.sort(rng.choice(len(pool.owners), clients, replace=False))
        tests = _rows_of(pool.owner, pool.test, chosen)
        if not any(len(rows) for rows in tests):
            raise ConfigurationError(
                f"{pool.source}: no test samples of the {clients} {pool.owned_by} chosen"
            )
        return Division(_rows_of(pool.owner, pool.train, chosen), tests)


def _rows_of(
    owner: NDArray[np.int64], rows: Indices, chosen: NDArray[np.int64]
) -> tuple[Indices, ...]:
    order = rows[np.argsort(owner[rows], kind="stable")]
    starts = np.searchsorted(owner[order], chosen, side="left")
    stops = np.searchsorted(owner[order], chosen, side="right")
    return tuple(order[start:stop] for start, stop in zip(starts, stops, strict=True))
