"""`FedAvg`: the mean (McMahan et al. 2017, arXiv 1602.05629, Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, everybody, shares
from clients.aggregators.mixture import Mixture, Vector


class FedAvg(Aggregator):
    """Σ_k p_k Δ_k with p_k = n_k / Σ n_k, which one attacker can move anywhere.

    Attributes:
        clipped: whether a longer update is first shortened to the median length of the round's.
    """

    name: ClassVar[str] = "FedAvg"

    clipped: Annotated[
        bool, Field(description="whether updates longer than the median are shortened to it")
    ] = False

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the mean; unclipped the same bits as the ledger's own of these updates."""
        parts = shares(weights)
        if self.clipped:
            lengths = mixture.distances_from(np.zeros_like(last))
            median = np.median(lengths)
            # A length of 0 is no longer than the median, and so never divides.
            parts = parts * np.divide(
                median, lengths, out=np.ones_like(lengths), where=lengths > median
            )
        return AggregatorSelection(mixture.combined(parts), everybody(mixture))
