"""`GeometricMedian` by smoothed Weiszfeld steps (Pillutla et al. 2022, RFA, arXiv 1912.13445)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from clients.aggregators.aggregator import (
    Aggregator,
    AggregatorSelection,
    Iterations,
    everybody,
    shares,
)
from clients.aggregators.mixture import Mixture, Vector
from clients.datasets.settings_table import Positive


class GeometricMedian(Aggregator):
    """Nearly the point with the smallest sum of distances to the updates.

    Each step takes z = Σ β_k x_k / Σ β_k with β_k = α_k / max(ν, |z - x_k|), from z = 0.

    Attributes:
        nu: ν, the smallest distance that is divided by. ByzFL's default; the paper has 1e-6.
        T: steps.
        weighted: whether α_k are the shares of the samples, as the paper has them; else they are
            equal, as in ByzFL.
    """

    name: ClassVar[str] = "GeometricMedian"

    nu: Positive = 0.1
    T: Iterations = 3
    weighted: bool = False

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the point after T steps; an update far away weighs little."""
        point = np.zeros(mixture.dimension)
        alphas = shares(weights if self.weighted else np.ones(len(mixture)))
        for _ in range(self.T):
            betas = alphas / np.maximum(self.nu, mixture.distances_from(point))
            point = mixture.combined(shares(betas))
        return AggregatorSelection(point, everybody(mixture))
