"""`leaf_cnn`: the convolutional network of the LEAF benchmark for FEMNIST (arXiv 1812.01097)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn, glorot_uniform
from clients.models.model import Option
from clients.models.model_options import require_images, require_known, width

_CHANNELS = (32, 64)
_KERNEL = 5
_HIDDEN = 2048
_LEAST_SIDE = 4


class LeafCnn(nn.Module):
    """Two 5 × 5 convolutions, each with ReLU and 2 × 2 max-pooling, then two linear layers.

    Args:
        input_shape: shape of one image, (channels, height, width).
        hidden: units of the first linear layer: 2,048 in LEAF, 512 in many later papers.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        first, second = _CHANNELS
        self.convolution1 = nn.Conv2d(channels, first, _KERNEL, padding=_KERNEL // 2)
        self.convolution2 = nn.Conv2d(first, second, _KERNEL, padding=_KERNEL // 2)
        self.linear1 = nn.Linear(second * (height // 4) * (width // 4), hidden)
        self.linear2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of images x, (n, *input_shape), in shape (n, classes)."""
        hidden = self.pool(self.relu(self.convolution1(x)))
        hidden = self.pool(self.relu(self.convolution2(hidden)))
        scores: Tensor = self.linear2(self.relu(self.linear1(hidden.flatten(1))))
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw Glorot-uniform weights and zero biases, as LEAF's TensorFlow layers do."""
        draw_in_turn(self, rng, glorot_uniform)


def leaf_cnn(form: DataForm, options: Mapping[str, Option]) -> LeafCnn:
    """Return the network for images; option `hidden` is the width of the first linear layer."""
    require_known("leaf_cnn", options, ("hidden",))
    require_images("leaf_cnn", form, least=_LEAST_SIDE)
    return LeafCnn(form.input_shape, form.classes, width("leaf_cnn", options, "hidden", _HIDDEN))
