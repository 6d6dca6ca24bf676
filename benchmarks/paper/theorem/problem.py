"""Theorem 1's constants of the data: F*, F_k*, Gamma, L, and the gap of an aggregation set.

Paper: section "Convergence Analysis", assumptions 1, 2 and 5, definitions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.theorem.objective import Objective, Weights, objective_of
from benchmarks.paper.theorem.optimum import Optimum, minimum
from clients.datasets.federated_data import FederatedData


@dataclass(frozen=True, slots=True, eq=False)
class ConvexProblem:
    """The objectives of all clients, and their minima.

    Attributes:
        clients: F_k of client k at index k.
        together: F = Σ p_k F_k, p_k = n_k / Σ n_k: the objective of all samples together.
        minima: F_k* of client k at index k, shape (K,).
        samples: n_k of client k at index k, shape (K,).
        mu: of assumption 2.
        smoothness: L of assumption 1, the largest of all clients.
    """

    clients: tuple[Objective, ...]
    together: Objective
    optimum: Optimum
    minima: NDArray[np.float64]
    samples: NDArray[np.int64]
    mu: float
    smoothness: float

    @property
    def gamma(self) -> float:
        """γ = 4 L / mu."""
        return 4 * self.smoothness / self.mu

    @property
    def shares(self) -> NDArray[np.float64]:
        """p_k of client k at index k."""
        shares: NDArray[np.float64] = self.samples / self.samples.sum()
        return shares

    @property
    def heterogeneity(self) -> float:
        """Γ = F* − Σ p_k F_k* (definition 1)."""
        return self.optimum.value - float(self.shares @ self.minima)

    def values(self, weights: Weights) -> NDArray[np.float64]:
        """Return F_k(w) of client k at index k."""
        return np.array([client.value(weights) for client in self.clients])

    def shares_among(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        """Return p_{k,S} = n_k / Σ_S n_k of each client of a set, in its order."""
        chosen_samples = self.samples[list(chosen)]
        shares: NDArray[np.float64] = chosen_samples / chosen_samples.sum()
        return shares

    def mean_over(self, chosen: Sequence[int], values: NDArray[np.float64]) -> float:
        """Return Σ p_{k,S} v_k over a set."""
        return float(self.shares_among(chosen) @ values[list(chosen)])

    def best_committee(self, members: int) -> tuple[int, ...]:
        """Return S_c*: the clients with the smallest F_k*, ties by their number."""
        order = np.argsort(self.minima, kind="stable")
        return tuple(sorted(order[:members].tolist()))

    def committee_gap(
        self, accepted: Sequence[int], values: NDArray[np.float64], committee: Sequence[int]
    ) -> float | None:
        """Return φ(S_a, w) = (Σ_{S_a} p F_k(w) − Σ_{S_c*} p F_k*) / (F(w) − Σ p_k F_k*).

        That is the aggregation-committee gap, definition 2.

        Args:
            accepted: S_a.
            values: F_k(w) of client k at index k.
            committee: S_c*.

        Returns:
            The gap of this set at this model; the definition takes the mean over all that could
            have happened. None where it would be 0 / 0: at w* where Γ = 0.
        """
        below = float(self.shares @ values) - float(self.shares @ self.minima)
        if below <= 0:
            return None
        above = self.mean_over(accepted, values) - self.mean_over(committee, self.minima)
        return above / below

    def committee_difference(self, accepted: Sequence[int], committee: Sequence[int]) -> float:
        """Return what assumption 5 bounds by κ²: |Σ_{S_a} p F_k* − Σ_{S_c*} p F_k*|."""
        return abs(self.mean_over(accepted, self.minima) - self.mean_over(committee, self.minima))


def problem_of(data: FederatedData, mu: float) -> ConvexProblem:
    """Return the problem of divided data; mu is the weight of the L2 term, above 0."""
    classes = data.form.classes
    clients = tuple(objective_of(client, data.collate, classes, mu) for client in data.train)
    together = Objective(
        np.concatenate([client.inputs for client in clients]),
        np.concatenate([client.labels for client in clients]),
        classes,
        mu,
    )
    return ConvexProblem(
        clients=clients,
        together=together,
        optimum=minimum(together),
        minima=np.array([minimum(client).value for client in clients]),
        samples=np.array([client.samples for client in clients], dtype=np.int64),
        mu=mu,
        smoothness=max(client.smoothness for client in clients),
    )
