"""The convex problem of Theorem 1: softmax regression with an L2 term, its minima and constants.

With the term every F_k is mu-strongly convex (assumption 2) and has a minimum; without it a client
whose samples are separable has none. Paper: section "Convergence Analysis", assumptions 1, 2 and 5,
definitions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clients.datasets.federated_data import Collate, FederatedData, Samples
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

GRADIENT_NORM = 1e-6
"""‖∇F‖ below which a point counts as the minimum: F is then within 1e-12 / (2 mu) of F*."""
MOST_STEPS = 10_000

Weights: TypeAlias = NDArray[np.float64]
"""W, one row per class; the last column are the biases. Shape (classes, inputs + 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """F(W) = 1/n Σ_i −log softmax(W x_i)[y_i] + mu/2 ‖W‖².

    Biases are a column of ones, so that they are regularised like the weights.

    Attributes:
        inputs: x_i with a one behind it, shape (n, inputs + 1).
        labels: y_i, shape (n,).
    """

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    mu: float

    @property
    def samples(self) -> int:
        return len(self.labels)

    @property
    def smoothness(self) -> float:
        """L of assumption 1: λ_max(XᵀX / n) / 2 + mu.

        The Hessian of a sample is (diag p − p pᵀ) ⊗ x xᵀ, and no eigenvalue of the first factor is
        above 1/2.
        """
        # XᵀX and XXᵀ have the same eigenvalues but for zeros: the smaller of them.
        x = self.inputs if self.inputs.shape[1] < self.samples else self.inputs.T
        return float(np.linalg.eigvalsh(x.T @ x)[-1]) / self.samples / 2 + self.mu

    def value(self, weights: Weights) -> float:
        """Return F(W)."""
        scores = self.inputs @ weights.T
        top = scores.max(axis=1)
        sums = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
        losses = sums - scores[np.arange(self.samples), self.labels]
        return float(losses.mean() + self.mu / 2 * np.sum(weights * weights))

    def accuracy(self, weights: Weights) -> float:
        """Return the share of the samples whose label has the largest score."""
        predicted = (self.inputs @ weights.T).argmax(axis=1)
        return float(np.mean(predicted == self.labels))

    def residuals(self, weights: Weights) -> NDArray[np.float64]:
        """Return softmax(W x_i) less one at y_i, of each sample, shape (n, classes)."""
        scores = self.inputs @ weights.T
        shares: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(self.samples), self.labels] -= 1
        return shares

    def gradient(
        self,
        weights: Weights,
        residuals: NDArray[np.float64] | None = None,
        rows: NDArray[np.int64] | slice = slice(None),
    ) -> Weights:
        """Return ∇F(W) over some of the samples, of the shape of W."""
        residuals = self.residuals(weights) if residuals is None else residuals
        inputs = self.inputs[rows]
        gradient: Weights = residuals[rows].T @ inputs / len(inputs) + self.mu * weights
        return gradient

    def gradient_moments(
        self, weights: Weights, residuals: NDArray[np.float64], batch_size: int
    ) -> tuple[float, float]:
        """Return E‖g‖² and E‖g − ∇F‖², which assumptions 3 and 4 bound, over all possible batches.

        A batch of b of the n samples is drawn without repetition, so that its mean gradient g has
        E‖g − ∇F‖² = S (n − b) / (b (n − 1)) with S = 1/n Σ_i ‖g_i‖² − ‖1/n Σ_i g_i‖².
        """
        mean = residuals.T @ self.inputs / self.samples
        # A sample's gradient is an outer product (and mu W, which moves all of them alike).
        squares = np.sum(residuals**2, axis=1) * np.sum(self.inputs**2, axis=1)
        spread = max(0.0, float(squares.mean() - np.sum(mean * mean)))
        left = self.samples - batch_size
        variance = spread * left / (batch_size * (self.samples - 1)) if left else 0.0
        whole = mean + self.mu * weights
        return float(np.sum(whole * whole)) + variance, variance


def objective_of(samples: Samples, collate: Collate, classes: int, mu: float) -> Objective:
    """Return the objective of a client, or of a test set."""
    rows = np.asarray(collate(samples.x), dtype=np.float64).reshape(len(samples.y), -1)
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    return Objective(inputs, np.asarray(samples.y), classes, mu)


def weights_of(vector: ParameterVector, classes: int) -> Weights:
    """Return W for the parameters of the model `softmax`: its weights, then its biases."""
    rows = np.asarray(vector, dtype=np.float64)
    return np.concatenate([rows[:-classes].reshape(classes, -1), rows[-classes:, None]], axis=1)


def vector_of_weights(weights: Weights) -> ParameterVector:
    """Return W as the parameters of the model `softmax`, rounded to float32 as they are sent."""
    return np.concatenate([weights[:, :-1].ravel(), weights[:, -1]]).astype(np.float32)


def minimum(objective: Objective, most_steps: int = MOST_STEPS) -> tuple[Weights, float]:
    """Return w* and F* of an objective; refuse a mu that is too small to find them."""
    shape = objective.classes, objective.inputs.shape[1]
    found = minimize(
        lambda flat: objective.value(flat.reshape(shape)),
        np.zeros(shape).ravel(),
        jac=lambda flat: objective.gradient(flat.reshape(shape)).ravel(),
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "maxiter": most_steps,
            "maxfun": 4 * most_steps,
            "ftol": 0.0,
            # The largest element; the norm of all of them is compared below.
            "gtol": GRADIENT_NORM / np.sqrt(shape[0] * shape[1]),
        },
    )
    weights: Weights = found.x.reshape(shape)
    norm = float(np.linalg.norm(objective.gradient(weights)))
    if not norm < GRADIENT_NORM:
        raise ConfigurationError(
            f"mu = {objective.mu}: the gradient is {norm:.3g} where it should be below "
            f"{GRADIENT_NORM:g}; a larger mu makes the minimum easier to find"
        )
    return weights, float(found.fun)


class ConvexProblem:
    """The objectives of all clients of divided data, and their minima.

    Attributes:
        clients: F_k of client k at index k.
        together: F = Σ p_k F_k, p_k = n_k / Σ n_k: the objective of all samples together.
        optimum: w*, where F is F* = `optimal_value`.
        minima: F_k* of client k at index k, shape (K,).
        shares: p_k of client k at index k, shape (K,).
        smoothness: L of assumption 1, the largest of all clients.
    """

    def __init__(self, data: FederatedData, mu: float) -> None:
        classes = data.form.classes
        self.mu = mu
        self.clients = [objective_of(client, data.collate, classes, mu) for client in data.train]
        self.together = Objective(
            np.concatenate([client.inputs for client in self.clients]),
            np.concatenate([client.labels for client in self.clients]),
            classes,
            mu,
        )
        self.optimum, self.optimal_value = minimum(self.together)
        self.minima = np.array([minimum(client)[1] for client in self.clients])
        self.samples = np.array([client.samples for client in self.clients], dtype=np.int64)
        self.shares: NDArray[np.float64] = self.samples / self.samples.sum()
        self.smoothness = max(client.smoothness for client in self.clients)

    @property
    def gamma(self) -> float:
        """γ = 4 L / mu."""
        return 4 * self.smoothness / self.mu

    @property
    def heterogeneity(self) -> float:
        """Γ = F* − Σ p_k F_k* (definition 1)."""
        return self.optimal_value - float(self.shares @ self.minima)

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

        That is the aggregation-committee gap, definition 2, of one set at one model, whose F_k(w)
        are the values. The definition takes the mean over all that could have happened. None where
        it would be 0 / 0: at w* where Γ = 0.
        """
        below = float(self.shares @ values) - float(self.shares @ self.minima)
        if below <= 0:
            return None
        above = self.mean_over(accepted, values) - self.mean_over(committee, self.minima)
        return above / below

    def committee_difference(self, accepted: Sequence[int], committee: Sequence[int]) -> float:
        """Return what assumption 5 bounds by κ²: |Σ_{S_a} p F_k* − Σ_{S_c*} p F_k*|."""
        return abs(self.mean_over(accepted, self.minima) - self.mean_over(committee, self.minima))
