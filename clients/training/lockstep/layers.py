"""A module as a chain of layers: each takes what the one before gave, and each sample by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x Wᵀ + b.

    Attributes:
        weight: name of W in the module, shape (outputs, inputs).
        bias: name of b, shape (outputs,); None without.
        inputs: numbers of one input.
        outputs: numbers of one output.
    """

    weight: str
    bias: str | None
    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        """Numbers of W."""
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of images, without groups, bordered by zeros.

    Attributes:
        weight: name of its kernels in the module.
        bias: name of its biases, one for each kernel; None without.
        kernels: shape (outputs, inputs, height, width).
        stride: down and right.
        padding: rows of zeros above and below, columns left and right.
        dilation: steps between the numbers under a kernel, down and right.
    """

    weight: str
    bias: str | None
    kernels: tuple[int, int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def size(self) -> int:
        """Numbers of all kernels."""
        return math.prod(self.kernels)


@dataclass(frozen=True, slots=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The largest number of each window of an image.

    Attributes:
        kernel: height and width of a window.
        stride: down and right.
        padding: rows of minus infinity above and below, columns left and right.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reshape:
    """The numbers of each sample in another shape, in the same order."""


Layer = Linear | Convolution | Relu | MaxPool | Reshape


@dataclass(frozen=True, slots=True)
class ShapedLayer:
    """A layer in its place.

    Attributes:
        layer: what it computes.
        input_shape: of one sample before it.
        output_shape: of one sample after it.
    """

    layer: Layer
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


Chain = tuple[ShapedLayer, ...]


def pooled_first(chain: Chain) -> Chain:
    """Return the same function with each max-pooling before the ReLU that it follows.

    It is the same to the last bit: max and ReLU keep order, and where all of a window is at most
    0, both ways give 0 and pass no gradient on. But there is less left for the ReLU to do.

    Args:
        chain: as the module has it.
    """
    links = list(chain)
    for place in range(1, len(links)):
        relu, pool = links[place - 1], links[place]
        if isinstance(relu.layer, Relu) and isinstance(pool.layer, MaxPool):
            links[place - 1] = pool
            links[place] = ShapedLayer(relu.layer, pool.output_shape, pool.output_shape)
    return tuple(links)
