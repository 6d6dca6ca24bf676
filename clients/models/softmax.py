"""`softmax`: multinomial logistic regression, its gradient in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from clients.models.model import ParameterVector
    from ledger.protocol.rules.distance.rule import Layout

_INITIAL_SCALE = 0.01


@dataclass(frozen=True, slots=True)
class SoftmaxRegression:
    """Class scores W x + b; the vector is W (classes, inputs) row by row, then b (classes).

    Attributes:
        input_shape: shape of one input; it is flattened.
        classes: number of classes.
    """

    input_shape: tuple[int, ...]
    classes: int

    @property
    def dimension(self) -> int:
        """Number of parameters: (inputs + 1) times classes."""
        return self.classes * (math.prod(self.input_shape) + 1)

    @property
    def layout(self) -> Layout:
        """W, then b."""
        weights = (self.classes, math.prod(self.input_shape))
        return (("weights", weights), ("biases", (self.classes,)))

    def initial(self, rng: np.random.Generator) -> ParameterVector:
        """Return small normal weights and zero biases.

        Args:
            rng: the initial model's own stream.

        Returns:
            Parameters, shape (d,).
        """
        weights = rng.standard_normal(self.dimension - self.classes) * _INITIAL_SCALE
        return np.concatenate([weights, np.zeros(self.classes)]).astype(np.float32)

    def logits(self, vector: Tensor, x: Tensor) -> Tensor:
        """Return the class scores of each input.

        Args:
            vector: parameters, shape (d,).
            x: inputs, shape (n, *input_shape).

        Returns:
            Scores, shape (n, classes).
        """
        split = self.dimension - self.classes
        weights = vector[:split].view(self.classes, -1)
        return torch.addmm(vector[split:], x.flatten(1), weights.t())

    def gradient(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the mean cross-entropy: (softmax − one-hot)ᵀ [x, 1] / n.

        Args:
            vector: parameters, shape (d,).
            x: inputs, shape (n, *input_shape).
            y: labels, shape (n,).

        Returns:
            Gradient, shape (d,).
        """
        residual = torch.softmax(self.logits(vector, x), dim=1)  # (n, classes)
        residual[torch.arange(len(y), device=y.device), y] -= 1
        residual /= len(y)
        weights = residual.t() @ x.flatten(1)
        return torch.cat([weights.flatten(), residual.sum(0)])
