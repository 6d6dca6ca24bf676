"""`FedAvg`: the mean (McMahan et al. 2017, arXiv 1602.05629, Algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, everybody, shares

if TYPE_CHECKING:
    from clients.aggregators.mixture import Mixture, Vector


class FedAvg(Aggregator):
    """Σ_k p_k Δ_k with p_k = n_k / Σ n_k, which one attacker can move anywhere."""

    name: ClassVar[str] = "FedAvg"

    def aggregate(
        self,
        mixture: Mixture,
        weights: Vector,
        last: Vector,  # noqa: ARG002 - one signature for all
    ) -> AggregatorSelection:
        """Return the mean; the same bits as the ledger's own aggregation of these updates."""
        return AggregatorSelection(mixture.combined(shares(weights)), everybody(mixture))
