"""`softmax`: multinomial logistic regression."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn
from clients.models.model import Option
from clients.models.model_options import require_known, require_numbers

_INITIAL_SCALE = 0.01


class SoftmaxRegression(nn.Module):
    """Class scores W x + b."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(classes, inputs))
        self.biases = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of inputs x, one row each, shape (n, classes)."""
        return functional.linear(x.flatten(1), self.weights, self.biases)

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw small normal weights and zero biases."""
        draw_in_turn(self, rng, lambda rng, _, shape: rng.standard_normal(shape) * _INITIAL_SCALE)


def softmax(form: DataForm, options: Mapping[str, Option]) -> SoftmaxRegression:
    """Return the regression for inputs of this form; it has no options."""
    require_known("softmax", options)
    require_numbers("softmax", form)
    return SoftmaxRegression(math.prod(form.input_shape), form.classes)
