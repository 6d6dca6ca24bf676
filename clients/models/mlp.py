"""`mlp`: a perceptron with one hidden layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn, he_normal
from clients.models.model import Option
from clients.models.model_options import require_known, require_numbers, width

_HIDDEN = 32


class Perceptron(nn.Module):
    """A linear layer with ReLU, then another linear layer."""

    def __init__(self, inputs: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.linear2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of inputs x, one row each, shape (n, classes)."""
        scores: Tensor = self.linear2(self.relu(self.linear1(x.flatten(1))))
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw He-normal weights and zero biases."""
        draw_in_turn(self, rng, he_normal)


def mlp(form: DataForm, options: Mapping[str, Option]) -> Perceptron:
    """Return the perceptron for numbers; option `hidden` is the width of its hidden layer."""
    require_known("mlp", options, ("hidden",))
    require_numbers("mlp", form)
    inputs = math.prod(form.input_shape)
    return Perceptron(inputs, form.classes, width("mlp", options, "hidden", _HIDDEN))
