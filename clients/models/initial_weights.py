"""Initial parameters of the built-in models, drawn by NumPy from a stream of their own.

torch's own initial values follow from a global state that everything else in the process draws
from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clients.models.model import trainable

if TYPE_CHECKING:
    Weights = Callable[[np.random.Generator, str, tuple[int, ...]], NDArray[np.float64]]


def draw_in_turn(module: nn.Module, rng: np.random.Generator, weights: Weights) -> None:
    """Set every trainable tensor in the order of the vector: random weights, zero biases.

    Args:
        rng: the initial model's own stream.
        weights: draws a tensor of a name and shape.
    """
    with torch.no_grad():
        for name, tensor in trainable(module):
            if tensor.dim() == 1:
                tensor.zero_()
            else:
                drawn = weights(rng, name, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))


def he_normal(rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return normal weights of variance 2 / inputs, which keep the scale of ReLU layers.

    Args:
        shape: (outputs, inputs), or (outputs, channels, height, width) of a convolution.
    """
    return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))


def glorot_uniform(
    rng: np.random.Generator, _: str, shape: tuple[int, ...], fans: int | None = None
) -> NDArray[np.float64]:
    """Return uniform weights of variance 2 / (inputs + outputs), TensorFlow's default.

    Args:
        rng: the initial model's own stream.
        shape: (outputs, inputs), or (outputs, channels, height, width) of a convolution.
        fans: inputs + outputs of the layer, if the tensor is only a part of it.
    """
    limit = math.sqrt(6 / (fans or (shape[0] + shape[1]) * math.prod(shape[2:])))
    return rng.uniform(-limit, limit, shape)
