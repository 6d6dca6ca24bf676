"""`cnn`: a small convolutional network for 8 × 8 and 28 × 28 images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as nn
from torch import Tensor

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.models.model import ParameterVector
    from ledger.protocol.rules.distance.rule import Layout

_CHANNELS = (8, 16)
_KERNEL = 3
_LARGEST_UNREDUCED_SIDE = 16
_TENSORS = tuple(
    f"{layer}.{part}"
    for layer in ("convolution1", "convolution2", "linear")
    for part in ("weights", "biases")
)


@dataclass(frozen=True, slots=True)
class ConvolutionalNetwork:
    """Two 3 × 3 convolutions with ReLU, then one linear layer.

    The second convolution halves the image, and so does the first where a side is longer than
    16. Strides rather than pooling: their gradient is deterministic on CUDA too. The vector is
    weights then biases, layer by layer.

    Attributes:
        input_shape: shape of one image, (channels, height, width).
        classes: number of classes.
    """

    input_shape: tuple[int, ...]
    classes: int

    @property
    def dimension(self) -> int:
        """Number of parameters of all layers."""
        return sum(math.prod(shape) for shape in self._shapes())

    @property
    def layout(self) -> Layout:
        """Weights and biases of each layer, named after it."""
        return tuple(zip(_TENSORS, self._shapes(), strict=True))

    def initial(self, rng: np.random.Generator) -> ParameterVector:
        """Return He-normal weights and zero biases.

        Args:
            rng: the initial model's own stream.

        Returns:
            Parameters, shape (d,).
        """
        parts = [
            rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
            if len(shape) > 1
            else np.zeros(shape)
            for shape in self._shapes()
        ]
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    def logits(self, vector: Tensor, x: Tensor) -> Tensor:
        """Return the class scores of each image.

        Args:
            vector: parameters, shape (d,).
            x: images, shape (n, *input_shape).

        Returns:
            Scores, shape (n, classes).
        """
        shapes = self._shapes()
        sizes = [math.prod(shape) for shape in shapes]
        parts = [part.view(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True)]
        hidden = nn.relu(nn.conv2d(x, parts[0], parts[1], self._first_stride(), padding=1))
        hidden = nn.relu(nn.conv2d(hidden, parts[2], parts[3], stride=2, padding=1))
        return nn.linear(hidden.flatten(1), parts[4], parts[5])

    def gradient(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the mean cross-entropy, by automatic differentiation.

        Args:
            vector: parameters, shape (d,).
            x: images, shape (n, *input_shape).
            y: labels, shape (n,).

        Returns:
            Gradient, shape (d,).
        """
        with torch.enable_grad():
            leaf = vector.detach().requires_grad_()
            loss = nn.cross_entropy(self.logits(leaf, x), y)
            return torch.autograd.grad(loss, leaf)[0]

    def _first_stride(self) -> int:
        return 2 if max(self.input_shape[1:]) > _LARGEST_UNREDUCED_SIDE else 1

    def _shapes(self) -> list[tuple[int, ...]]:
        height, width = (
            math.ceil(math.ceil(side / self._first_stride()) / 2) for side in self.input_shape[1:]
        )
        shapes: list[tuple[int, ...]] = []
        for before, after in pairwise((self.input_shape[0], *_CHANNELS)):
            shapes += [(after, before, _KERNEL, _KERNEL), (after,)]
        return [*shapes, (self.classes, _CHANNELS[-1] * height * width), (self.classes,)]


def convolutional_network(input_shape: tuple[int, ...], classes: int) -> ConvolutionalNetwork:
    """Return the network for images of this shape.

    Args:
        input_shape: (channels, height, width).
        classes: number of classes.

    Returns:
        The network.

    Raises:
        ConfigurationError: the inputs are no images.
    """
    if len(input_shape) != 3:
        raise ConfigurationError(
            f"model 'cnn' needs images (channels, height, width), not shape {input_shape}"
        )
    return ConvolutionalNetwork(input_shape, classes)
