"""Partitions of data among clients: iid, shards, quantity, Dirichlet and natural."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from clients.datasets.federated_data import (
    Count,
    Indices,
    Labels,
    PooledData,
    Positive,
    SettingsTable,
    Share,
    named,
    parse_settings,
    require_trained,
)
from ledger.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Rows of each client's training samples, and of its test; None with a common test alone."""

    train: tuple[Indices, ...]
    tests: tuple[Indices, ...] | None = None


class Partition(SettingsTable, ABC):
    """A partitioner: its settings, with its name."""

    @abstractmethod
    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client, at least one training row each, no row twice."""


class DrawnShares(Partition, ABC):
    """A partitioner with shares drawn from Dirichlet(alpha, ..., alpha) and a minimum."""

    alpha: Positive = 0.5
    """Parameter of the Dirichlet distribution; smaller values give more unequal shares."""
    minimum: Count = 1
    """Smallest number of training samples of a client."""


def require_enough(samples: int, clients: int, minimum: int = 1) -> None:
    """Reject more clients than there are training samples for."""
    if clients < 1:
        raise ConfigurationError(f"protocol.clients = {clients}: at least 1 is needed")
    if clients * minimum > samples:
        raise ConfigurationError(
            f"protocol.clients = {clients}: more clients than data; each client needs "
            f"{minimum} training sample(s), and there are {samples}"
        )


def require_classes(pool: PooledData, partition: str) -> None:
    """Reject samples without a class where a partition divides classes."""
    if pool.form.task != "classify":
        raise ConfigurationError(
            f"data.partition.name = {partition}: divides classes, not {pool.form.task}; use iid"
        )


def cut_points(proportions: NDArray[np.float64], total: int) -> list[int]:
    """Return the bounds of parts with these proportions, from 0 to `total`."""
    inner = np.floor(np.cumsum(proportions)[:-1] * total).astype(np.int64)
    return [0, *np.clip(inner, 0, total).tolist(), total]


def level_up(shares: list[list[int]], minimum: int) -> None:
    """Fill shares below the minimum with one sample at a time from the largest one, in place."""
    for share in shares:
        while len(share) < minimum:
            richest = max(shares, key=len)
            share.append(richest.pop())


class IidPartition(Partition):
    """The training samples in random order, cut into equal parts."""

    name: Literal["iid"] = "iid"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        require_enough(len(pool.train), clients)
        parts = np.array_split(rng.permutation(pool.train), clients)
        return Division(tuple(np.sort(part) for part in parts))


class ShardsPartition(Partition):
    """Parts of each client. The samples by class are cut into K times `shards` parts."""

    name: Literal["shards"] = "shards"
    shards: Count = 2

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        require_classes(pool, self.name)
        require_enough(len(pool.train), clients, self.shards)
        shuffled = rng.permutation(pool.train)
        by_class = shuffled[np.argsort(pool.y[shuffled], kind="stable")]
        parts = np.array_split(by_class, clients * self.shards)
        dealt = rng.permutation(len(parts)).reshape(clients, self.shards)
        return Division(
            tuple(np.sort(np.concatenate([parts[part] for part in hand])) for hand in dealt)
        )


def _below_one(shares: list[float] | None) -> list[float] | None:
    if shares is not None and sum(shares) >= 1:
        raise ValueError(f"sum to {sum(shares):g}: must be below 1, for the other clients")
    return shares


class QuantityPartition(DrawnShares):
    """The samples in random order, cut by shares drawn from Dirichlet(alpha, ..., alpha)."""

    name: Literal["quantity"] = "quantity"
    shares: (
        Annotated[list[Share], Field(min_length=1, max_length=1_000), AfterValidator(_below_one)]
        | None
    ) = None
    """Shares of the first clients in all samples. The others share the rest, by random draw."""

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        require_enough(len(pool.train), clients, self.minimum)
        given = self.shares or []
        if len(given) >= clients:
            raise ConfigurationError(f"data.partition.shares: {len(given)} are over {clients - 1}")
        order = rng.permutation(pool.train)
        drawn = rng.dirichlet(np.full(clients - len(given), self.alpha)) * (1 - sum(given))
        bounds = cut_points(np.array([*given, *drawn]), len(order))
        shares = [order[start:stop].tolist() for start, stop in pairwise(bounds)]
        level_up(shares, self.minimum)
        return Division(tuple(np.array(sorted(share), dtype=np.int64) for share in shares))


class DirichletPartition(DrawnShares):
    """Each class is divided by shares drawn from Dirichlet(alpha, ..., alpha)."""

    name: Literal["dirichlet"] = "dirichlet"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        require_classes(pool, self.name)
        shares = dirichlet_shares(pool.y[pool.train], clients, self.alpha, rng, self.minimum)
        return Division(tuple(pool.train[share] for share in shares))


def dirichlet_shares(
    labels: Labels, clients: int, alpha: float, rng: np.random.Generator, minimum: int = 1
) -> tuple[Indices, ...]:
    """Return the ascending indices of each client's samples; a small alpha gives a class to few."""
    require_enough(len(labels), clients, minimum)
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        bounds = cut_points(rng.dirichlet(np.full(clients, alpha)), len(members))
        for share, (start, stop) in zip(shares, pairwise(bounds), strict=True):
            share.extend(members[start:stop].tolist())
    level_up(shares, minimum)
    return tuple(np.array(sorted(share), dtype=np.int64) for share in shares)


class NaturalPartition(Partition):
    """K random owners, numbered in their own order, with their own split."""

    name: Literal["natural"] = "natural"

    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each drawn owner; a test may be empty."""
        if pool.owner is None:
            raise ConfigurationError(
                f"data.partition.name = 'natural': {pool.source} has no natural clients"
            )
        if clients > len(pool.owners):
            raise ConfigurationError(
                f"protocol.clients = {clients}: more clients than data; {pool.source} has "
                f"{len(pool.owners)} {pool.owned_by}"
            )
        require_enough(len(pool.owners), clients)
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


PARTITIONS: dict[str, type[Partition]] = {
    "natural": NaturalPartition,
    "iid": IidPartition,
    "dirichlet": DirichletPartition,
    "shards": ShardsPartition,
    "quantity": QuantityPartition,
}


def partition_of(
    values: Mapping[str, Any], *, has_owners: bool, has_classes: bool = True
) -> Partition:
    """Return the partitioner of a settings table; the default depends on owners and classes."""
    usual = "natural" if has_owners else "dirichlet" if has_classes else "iid"
    name = str(values.get("name", usual))
    partition = named("data.partition.name: unknown partition", PARTITIONS, name)
    return parse_settings(partition, values, "data.partition")
