"""The pre-aggregator's interface: many vectors in, means of some of them out."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from clients.aggregators.mixture import Mixture
from clients.aggregators.stage import AggregationStage


class PreAggregator(AggregationStage):
    """A pre-aggregator with its options."""

    def count(self, vectors: int) -> int:
        """Return the number of vectors that it makes of n."""
        return vectors

    @abstractmethod
    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return what each new vector is made of, shape (new vectors, vectors).

        Args:
            mixture: the vectors, at least `least` of them.
            rng: its own stream of the round.
        """
