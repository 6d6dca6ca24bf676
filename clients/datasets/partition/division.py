"""What every partitioner comes to: which rows of the pooled data each client holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.settings_table import Count, Positive, SettingsTable
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clients.datasets.records import Indices, PooledData


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Rows of the pooled data.

    Attributes:
        train: training rows of client i at index i, none of them empty.
        tests: test rows of client i at index i; None where only all of them are a test.
    """

    train: tuple[Indices, ...]
    tests: tuple[Indices, ...] | None = None


class Partition(SettingsTable, ABC):
    """A partitioner with its settings: a table with its name, and what it adds."""

    @abstractmethod
    def divide(self, pool: PooledData, clients: int, rng: np.random.Generator) -> Division:
        """Return which rows each client holds.

        Args:
            pool: the data set.
            clients: number of clients K.
            rng: the partition's own stream of chance.

        Returns:
            At least one training row for each client, no row for two.

        Raises:
            ConfigurationError: there are more clients than the data allow.
        """


class DrawnShares(Partition, ABC):
    """A partitioner whose shares are drawn from Dirichlet(alpha, ..., alpha), each with a least."""

    alpha: Positive = 0.5
    minimum: Count = 1


def require_enough(samples: int, clients: int, minimum: int = 1) -> None:
    """Refuse more clients than there are training samples for.

    Args:
        samples: training samples in all.
        clients: number of clients K.
        minimum: samples that every client gets at least.

    Raises:
        ConfigurationError: no clients, or too many of them.
    """
    if clients < 1:
        raise ConfigurationError(f"protocol.clients = {clients}: at least 1 is needed")
    if clients * minimum > samples:
        raise ConfigurationError(
            f"protocol.clients = {clients}: more clients than data: {clients} clients with at "
            f"least {minimum} training sample(s) each, but there are {samples} training samples"
        )


def cut_points(proportions: NDArray[np.float64], total: int) -> list[int]:
    """Return where to cut a row of samples into parts of these proportions.

    Args:
        proportions: one of each part; their sum is 1.
        total: samples in the row.

    Returns:
        Where each part begins, and the total at the end.
    """
    inner = np.floor(np.cumsum(proportions)[:-1] * total).astype(np.int64)
    return [0, *np.clip(inner, 0, total).tolist(), total]


def level_up(shares: list[list[int]], minimum: int) -> None:
    """Let every share that is too small take one sample at a time from the largest one.

    Args:
        shares: of each client; changed in place.
        minimum: samples that every client gets at least.
    """
    for share in shares:
        while len(share) < minimum:
            richest = max(shares, key=len)
            share.append(richest.pop())
