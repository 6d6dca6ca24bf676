"""The port of partitioners, and what they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.datasets.records import Indices, PooledData
from clients.datasets.settings_table import Count, Positive, SettingsTable
from ledger.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Rows of the pooled data.

    Attributes:
        train: training rows of client i at index i, not empty.
        tests: test rows of client i at index i; None if there is only a common test.
    """

    train: tuple[Indices, ...]
    tests: tuple[Indices, ...] | None = None


class Partition(SettingsTable, ABC):
    """A partitioner: its settings, with its name."""

    @abstractmethod
    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return the rows of each client, at least one training row each, no row twice.

        Args:
            rng: the partition's own random stream.

        Raises:
            ConfigurationError: more clients than the data allow.
        """


class DrawnShares(Partition, ABC):
    """A partitioner with shares drawn from Dirichlet(alpha, ..., alpha) and a minimum."""

    alpha: Positive = 0.5
    minimum: Count = 1


def require_enough(samples: int, clients: int, minimum: int = 1) -> None:
    """Reject more clients than there are training samples for.

    Args:
        minimum: least number of samples per client.
    """
    if clients < 1:
        raise ConfigurationError(f"protocol.clients = {clients}: at least 1 is needed")
    if clients * minimum > samples:
        raise ConfigurationError(
            f"protocol.clients = {clients}: more clients than data: {clients} clients with at "
            f"least {minimum} training sample(s) each, but there are {samples} training samples"
        )


def require_classes(pool: PooledData, partition: str) -> None:
    """Reject samples without a class where a partition divides classes."""
    if pool.form.task != "classify":
        raise ConfigurationError(
            f"data.partition.name = {partition}: divides classes, and the task is "
            f"{pool.form.task}; iid and quantity do not"
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
