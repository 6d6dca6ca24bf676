"""`NNM`, nearest-neighbour mixing (Allouah et al. 2023, "Fixing by mixing", arXiv 2302.01772)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.aggregators.mixture import Mixture
from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator
from clients.aggregators.stage import Faulty


class NNM(PreAggregator):
    """Every vector becomes the mean of the n - f vectors nearest to it, itself among them.

    Attributes:
        f: how many of them may be anything.
    """

    name: ClassVar[str] = "NNM"
    rule: ClassVar[str] = "2f < n"

    f: Faulty

    @property
    def least(self) -> int:
        """Return the fewest vectors that it takes."""
        return 2 * self.f + 1

    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return 1 / (n - f) at the neighbours of each; of equal distances the first are taken."""
        n = len(mixture)
        near = np.argsort(mixture.squared_distances(), axis=1, kind="stable")[:, : n - self.f]
        result = np.zeros((n, n))
        np.put_along_axis(result, near, 1 / (n - self.f), axis=1)
        return result
