"""`TrMean`, coordinate by coordinate (Yin et al. 2018, arXiv 1803.01498, Definition 2)."""

from __future__ import annotations

from typing import ClassVar

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, everybody
from clients.aggregators.mixture import Mixture, Vector
from clients.aggregators.stage import Faulty


class TrMean(Aggregator):
    """In each coordinate the mean without the f smallest and the f largest.

    Attributes:
        f: how many are cut off at each end; the paper has a share beta, f = beta n.
    """

    name: ClassVar[str] = "TrMean"
    rule: ClassVar[str] = "2f < n"

    f: Faulty

    @property
    def least(self) -> int:
        """Return the fewest vectors that it takes."""
        return 2 * self.f + 1

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the trimmed mean of each coordinate, unweighted as in the paper."""
        vector = mixture.mean_of_ranks(self.f, len(mixture) - self.f)
        return AggregatorSelection(vector, everybody(mixture))
