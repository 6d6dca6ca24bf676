"""`cnn`: a small convolutional network for 8 × 8 and 28 × 28 images."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn, he_normal
from clients.models.model import Option
from clients.models.model_options import require_images, require_known

_CHANNELS = (8, 16)
_KERNEL = 3
_LARGEST_UNREDUCED_SIDE = 16


class _Layer(nn.Module):
    """Weights and zero biases, one for each output."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(shape))
        self.biases = nn.Parameter(torch.zeros(shape[0]))


class ConvolutionalNetwork(nn.Module):
    """Two 3 × 3 convolutions with ReLU, then one linear layer.

    The second convolution halves the image, and so does the first if a side is longer than 16.
    Strides replace pooling: their gradient is deterministic on CUDA too. The vector has weights
    then biases, layer by layer.

    Args:
        input_shape: shape of one image, (channels, height, width).
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = input_shape
        first, second = _CHANNELS
        self.stride = 2 if max(sides) > _LARGEST_UNREDUCED_SIDE else 1
        height, width = (math.ceil(math.ceil(side / self.stride) / 2) for side in sides)
        self.convolution1 = _Layer(first, channels, _KERNEL, _KERNEL)
        self.convolution2 = _Layer(second, first, _KERNEL, _KERNEL)
        self.linear = _Layer(classes, second * height * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of images x, (n, *input_shape), in shape (n, classes)."""
        first, second, last = self.convolution1, self.convolution2, self.linear
        hidden = functional.conv2d(x, first.weights, first.biases, self.stride, padding=1)
        hidden = functional.relu(hidden)
        hidden = functional.conv2d(hidden, second.weights, second.biases, stride=2, padding=1)
        hidden = functional.relu(hidden)
        return functional.linear(hidden.flatten(1), last.weights, last.biases)

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw He-normal weights and zero biases."""
        draw_in_turn(self, rng, he_normal)


def cnn(form: DataForm, options: Mapping[str, Option]) -> ConvolutionalNetwork:
    """Return the network for images of this form; it has no options."""
    require_known("cnn", options)
    require_images("cnn", form)
    return ConvolutionalNetwork(form.input_shape, form.classes)
