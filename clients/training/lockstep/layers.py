"""A module as a chain of layers, each of which processes samples independently."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x Wᵀ + b.

    Attributes:
        weight: name of W in the module, shape (outputs, inputs).
        bias: name of b, shape (outputs,); None without.
    """

    weight: str
    bias: str | None
    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        """Number of elements of W."""
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of images, without groups, padded with zeros.

    Attributes:
        bias: name of its biases, one for each kernel; None without.
        kernels: shape (outputs, inputs, height, width).
        padding: rows of zeros above and below, columns left and right.
        dilation: steps between the elements under a kernel, down and right.
    """

    weight: str
    bias: str | None
    kernels: tuple[int, int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def size(self) -> int:
        """Number of elements of all kernels."""
        return math.prod(self.kernels)


@dataclass(frozen=True, slots=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The maximum of each window of an image.

    Attributes:
        padding: rows of minus infinity above and below, columns left and right.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Another shape of each sample, with its elements in the same order."""


Layer = Linear | Convolution | Relu | MaxPool | Reshape


@dataclass(frozen=True, slots=True)
class ShapedLayer:
    """A layer with the shapes around it."""

    layer: Layer
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


Chain = tuple[ShapedLayer, ...]


def pooled_first(chain: Chain) -> Chain:
    """Return the same function with each max-pooling before the ReLU that it follows.

    The result is equal to the last bit: max and ReLU preserve order, and for a window without
    positive elements both orders give 0 and pass no gradient. The ReLU has fewer elements to
    process.
    """
    layers = list(chain)
    for i in range(1, len(layers)):
        relu, pool = layers[i - 1], layers[i]
        if isinstance(relu.layer, Relu) and isinstance(pool.layer, MaxPool):
            layers[i - 1] = pool
            layers[i] = ShapedLayer(relu.layer, pool.output_shape, pool.output_shape)
    return tuple(layers)


class ChunkLayer(Protocol):
    """A layer, or several, with the parameters of each client of a chunk.

    Inputs and outputs have one row for each sample, client after client. Images are tensors (rows,
    channels, height, width) in channels-last memory format.
    """

    def load(self, start: Tensor) -> None:
        """Load the start of all clients' training.

        Args:
            start: the global model w_t, shape (d,), unchanged until the next `load`.
        """

    def forward(self, x: Tensor, step: int) -> Tensor:
        """Return the outputs, and store what `backward` needs."""

    def backward(self, dy: Tensor, step: int) -> Tensor | None:
        """Take the step of SGD; return the gradient of the inputs, None if not needed."""

    def write(self, update: Tensor, place: int, steps: int) -> None:
        """Write the difference w_start − w_end of one client's parameters.

        Args:
            update: of all parameters, shape (d,).
        """
