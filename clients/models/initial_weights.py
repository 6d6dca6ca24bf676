"""How the built-in models draw their first parameters: by NumPy, from a stream of their own.

torch's own initial numbers follow from a state that everything else in a process draws from, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from clients.models.model import trainable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn

    Weights = Callable[[np.random.Generator, str, tuple[int, ...]], NDArray[np.float64]]


def draw_in_turn(module: nn.Module, rng: np.random.Generator, weights: Weights) -> None:
    """Set every trainable tensor in the order of the vector: weights drawn, biases zero.

    Args:
        module: whose parameters are overwritten; those of one dimension are its biases.
        rng: the initial model's own stream.
        weights: draws a tensor of this name and shape.
    """
    with torch.no_grad():
        for name, tensor in trainable(module):
            if tensor.dim() == 1:
                tensor.zero_()
            else:
                drawn = weights(rng, name, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))


def he_normal(rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return normal weights of variance 2 / inputs, which ReLU layers keep at one scale.

    Args:
        rng: the initial model's own stream.
        shape: (outputs, inputs), or (outputs, channels, height, width) of a convolution.
    """
    return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))


def glorot_uniform(
    rng: np.random.Generator, _: str, shape: tuple[int, ...], fans: int | None = None
) -> NDArray[np.float64]:
    """Return uniform weights of variance 2 / (inputs + outputs), TensorFlow's own start.

    Args:
        rng: the initial model's own stream.
        shape: (outputs, inputs), or (outputs, channels, height, width) of a convolution.
        fans: inputs + outputs of the layer, where the tensor is only a part of it.
    """
    limit = math.sqrt(6 / (fans or (shape[0] + shape[1]) * math.prod(shape[2:])))
    return rng.uniform(-limit, limit, shape)
