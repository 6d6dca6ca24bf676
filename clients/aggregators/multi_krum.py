"""`MultiKrum`: the mean of the densest updates (Blanchard et al. 2017, as Krum)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from clients.aggregators.aggregator import AggregatorSelection
from clients.aggregators.krum import Krum
from clients.aggregators.mixture import Mixture, Vector
from clients.aggregators.stage import Whole


class MultiKrum(Krum):
    """The mean of the updates with the smallest scores of Krum.

    Attributes:
        f: number of arbitrary updates to tolerate.
        m: how many are averaged, n - f where it is not given; at most n - f. The authors of CMFL
            take as many as CMFL aggregates.
        weighted: whether by samples, as the authors of CMFL have it; Krum's paper has no weights.
    """

    name: ClassVar[str] = "MultiKrum"
    rule: ClassVar[str] = "2f + 2 < n and m <= n - f"

    m: Whole | None = None
    weighted: bool = False

    @property
    def least(self) -> int:
        """Return the fewest vectors that it takes."""
        return max(2 * self.f + 3, self.f + (self.m or 1))

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the mean of the chosen updates; equal scores are chosen in their order."""
        alike = weights if self.weighted else np.ones(len(mixture))
        return self.densest(mixture, alike, self.m or len(mixture) - self.f)
