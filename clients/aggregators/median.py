"""`Median`, coordinate by coordinate (Yin et al. 2018, arXiv 1803.01498, Definition 1)."""

from __future__ import annotations

from typing import ClassVar

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, everybody
from clients.aggregators.mixture import Mixture, Vector


class Median(Aggregator):
    """In each coordinate the middle one, or half the sum of the two in the middle.

    Unweighted, as in the paper and in the authors' code. Fewer than half of the updates cannot
    move a coordinate beyond what the honest have there.
    """

    name: ClassVar[str] = "Median"

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the median of each coordinate."""
        half = len(mixture) // 2
        vector = mixture.mean_of_ranks(half - 1 + len(mixture) % 2, half + 1)
        return AggregatorSelection(vector, everybody(mixture))
