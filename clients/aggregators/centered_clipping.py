"""`CenteredClipping` (Karimireddy, He, Jaggi 2021, "Learning from history", arXiv 2012.10333)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, Iterations, everybody
from clients.aggregators.mixture import Mixture, Vector


class CenteredClipping(Aggregator):
    """The last aggregate, moved by what the updates differ from it, each difference clipped.

    Each step takes v = v + (1/n) Σ_k (x_k - v) min(1, τ / |x_k - v|), and begins at the aggregate
    of the round before, at zero in the first round.

    Attributes:
        tau: τ, how far one update can pull; in units of an update's length.
        L: steps.
    """

    name: ClassVar[str] = "CenteredClipping"

    tau: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="how far one update can pull"),
    ]
    L: Iterations = 1

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the point after L steps, unweighted as in the paper."""
        n, point = len(mixture), last
        for _ in range(self.L):
            # A distance below tau, 0 among them, is not clipped.
            pulls = self.tau / np.maximum(self.tau, mixture.distances_from(point)) / n
            point = point * (1 - pulls.sum()) + mixture.combined(pulls)
        return AggregatorSelection(point, everybody(mixture))
