"""Splitting a pooled data set among clients that see different class mixtures (non-IID)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.federated import Labels

Indices = NDArray[np.int64]


def dirichlet_partition(
    labels: Labels,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    minimum: int = 1,
) -> tuple[Indices, ...]:
    """Return which samples each client holds: every sample goes to exactly one client.

    Each class is divided among the clients by shares drawn from Dirichlet(alpha, ..., alpha):
    a small alpha gives a class to few clients, a large one deals it out evenly. A client left
    with fewer than `minimum` samples then takes one at a time from the client that has most.

    Args:
        labels: class of every sample, shape (N,).
        clients: number of clients K, at least 1.
        alpha: concentration of the Dirichlet distribution, above 0.
        rng: the partition's own stream of chance.
        minimum: samples that every client gets at least.

    Returns:
        K ascending arrays of sample indices, client i's at index i.

    Raises:
        ConfigurationError: more clients than data, or an alpha that is not above 0.
    """
    if clients < 1:
        raise ConfigurationError(f"clients = {clients}: at least 1 is needed")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigurationError(f"dirichlet_alpha = {alpha}: must be finite and above 0")
    if clients * minimum > len(labels):
        raise ConfigurationError(
            f"more clients than data: {clients} clients with at least {minimum} training "
            f"sample(s) each, but there are {len(labels)} training samples"
        )
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        bounds = _cut_points(rng.dirichlet(np.full(clients, alpha)), len(members))
        for share, (start, stop) in zip(shares, pairwise(bounds), strict=True):
            share.extend(members[start:stop].tolist())
    _level_up(shares, minimum)
    return tuple(np.array(sorted(share), dtype=np.int64) for share in shares)


def _cut_points(proportions: NDArray[np.float64], total: int) -> list[int]:
    inner = np.floor(np.cumsum(proportions)[:-1] * total).astype(np.int64)
    return [0, *np.clip(inner, 0, total).tolist(), total]


def _level_up(shares: list[list[int]], minimum: int) -> None:
    for share in shares:
        while len(share) < minimum:
            richest = max(shares, key=len)
            share.append(richest.pop())
