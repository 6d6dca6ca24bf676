"""The one model here that keeps the theorem's assumptions: softmax regression with an L2 term.

With the term every F_k is mu-strongly convex (assumption 2) and has a minimum; without it a client
whose samples are separable has none. All is float64, and the biases are a column of ones, so
that they are regularised like the weights: else F_k would not be strongly convex in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import Collate, Samples

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

Weights = NDArray[np.float64]
"""W, one row per class; the last column are the biases. Shape (classes, inputs + 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """F(W) = 1/n Σ_i −log softmax(W x_i)[y_i] + mu/2 ‖W‖².

    Attributes:
        inputs: x_i with a one behind it, shape (n, inputs + 1).
        labels: y_i, shape (n,).
        mu: weight of the L2 term, at least 0.
    """

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    mu: float

    @property
    def samples(self) -> int:
        """The number n of samples."""
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

    def gradient(self, weights: Weights) -> Weights:
        """Return ∇F(W), of the shape of W."""
        return self.mean_gradient(weights, self.residuals(weights), self.inputs)

    def mean_gradient(
        self, weights: Weights, residuals: NDArray[np.float64], inputs: NDArray[np.float64]
    ) -> Weights:
        """Return the gradient of some of the samples."""
        gradient: Weights = residuals.T @ inputs / len(inputs) + self.mu * weights
        return gradient

    def gradient_moments(
        self, weights: Weights, residuals: NDArray[np.float64], batch_size: int
    ) -> tuple[float, float]:
        """Return what assumptions 3 and 4 bound, exactly: over all batches that could be drawn.

        A batch of b of the n samples is drawn without repetition, so that its mean gradient g has
        E‖g − ∇F‖² = S (n − b) / (b (n − 1)) with S = 1/n Σ_i ‖g_i‖² − ‖1/n Σ_i g_i‖².

        Args:
            batch_size: b; at most n.

        Returns:
            E‖g‖² and E‖g − ∇F‖².
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
