"""`Krum`: the update in the densest place (Blanchard, El Mhamdi, Guerraoui, Stainer 2017)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, shares
from clients.aggregators.mixture import Mixture, Vector
from clients.aggregators.stage import Faulty


class Krum(Aggregator):
    """The update with the smallest sum of squared distances to its n - f - 2 nearest others.

    ByzFL 0.0.11 takes n - f - 1 of them, so that its Krum(f + 1) is this Krum(f).

    Attributes:
        f: number of arbitrary updates to tolerate.
    """

    name: ClassVar[str] = "Krum"
    rule: ClassVar[str] = "2f + 2 < n"

    f: Faulty

    @property
    def least(self) -> int:
        """Return the fewest vectors that it takes."""
        return 2 * self.f + 3

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return one update as it is; of several with one score the first."""
        return self.densest(mixture, np.ones(len(mixture)), 1)

    def densest(self, mixture: Mixture, weights: Vector, count: int) -> AggregatorSelection:
        """Return the mean of some updates with the smallest scores."""
        scores = krum_scores(mixture.squared_distances(), self.f)
        chosen = np.sort(np.argsort(scores, kind="stable")[:count])
        part = np.zeros(len(mixture))
        part[chosen] = shares(weights[chosen])
        return AggregatorSelection(mixture.combined(part), tuple(chosen.tolist()))


def krum_scores(squared: NDArray[np.float64], f: int) -> Vector:
    """Return Krum's score of each vector: the sum of |x_i - x_j|² over its nearest others.

    Args:
        squared: squared distances of every two vectors, shape (n, n).
        f: how many of them may be anything: n - f - 2 others count, at least 1.

    Returns:
        Shape (n,); smaller is denser.
    """
    n = len(squared)
    # Not by dropping the smallest: a repeated vector is its own nearest neighbour.
    others = squared[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    return np.asarray(np.sort(others, axis=1)[:, : n - f - 2].sum(axis=1))
