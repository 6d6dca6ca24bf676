"""Layers of a module that process samples independently, for stacked clients."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ledger.protocol.rules.distance import Layout


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


_LINE = 16  # float32 numbers in 64 bytes, torch's alignment


class TensorViews:
    """The tensors of a flat vector by name.

    Args:
        layout: name and shape of each, in the order of the vector.
    """

    def __init__(self, layout: Layout) -> None:
        self._slices: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        first = 0
        for name, shape in layout:
            last = first + math.prod(shape)
            self._slices[name] = (first, last, tuple(shape))
            first = last

    def of(self, vector: torch.Tensor, name: str) -> torch.Tensor:
        """Return a tensor as a view of a vector of shape (d,)."""
        first, last, shape = self._slices[name]
        return vector[first:last].view(shape)


def aligned(numbers: int) -> int:
    """Round up a count of float32 numbers to the alignment of memory.

    A kernel may sum in another order at another alignment, and the bytes of an update would depend
    on its client's index in the chunk.
    """
    return math.ceil(numbers / _LINE) * _LINE


def row_shape(layer: Linear | Convolution) -> tuple[int, ...]:
    """Return the shape of one row of a layer's W."""
    if isinstance(layer, Linear):
        return (layer.inputs,)
    _, channels, height, width = layer.kernels
    return (height, width, channels)


class _WithoutParameters:
    """Base class of layers without parameters."""

    def load(self, start: Tensor) -> None:
        pass

    def write(self, update: Tensor, place: int, steps: int) -> None:
        pass


class ReluPart(_WithoutParameters):
    """max(x, 0)."""

    _y: Tensor

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        self._y = torch.relu(x)
        return self._y

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the gradient of the inputs; it is 0 at 0."""
        gradient: Tensor = torch.ops.aten.threshold_backward(dy, self._y, 0)
        return gradient


class ReshapePart(_WithoutParameters):
    """Another shape of each sample; its elements stay in the order of channels, rows, columns."""

    def __init__(self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> None:
        self._before = input_shape
        self._after = output_shape

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        return channels_last(x.reshape(-1, *self._after))

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        return channels_last(dy.reshape(-1, *self._before))


class MaxPoolPart(_WithoutParameters):
    """Max-pooling by torch's own kernel."""

    _x: Tensor
    _chosen: Tensor

    def __init__(self, layer: MaxPool) -> None:
        self._windows = [list(layer.kernel), list(layer.stride), list(layer.padding), [1, 1]]

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        self._x = x
        y: Tensor
        y, self._chosen = torch.ops.aten.max_pool2d_with_indices(x, *self._windows)
        return y

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the gradient of the inputs; a window's goes to its first maximum."""
        gradient: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            dy, self._x, *self._windows, False, self._chosen
        )
        return gradient


class OrderedMaxPoolPart(_WithoutParameters):
    """Max-pooling with a gradient that is summed in a fixed order, unlike torch's own on CUDA."""

    _best: Tensor
    _padded_shape: torch.Size

    def __init__(self, layer: MaxPool) -> None:
        self._layer = layer

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        down, right = self._layer.padding
        padded = functional.pad(x, (right, right, down, down), value=-torch.inf)
        self._padded_shape = padded.shape
        candidates = self._offsets(padded)
        y = next(candidates).clone()
        self._best = torch.zeros_like(y)
        for place, candidate in enumerate(candidates, start=1):
            self._best.masked_fill_(candidate > y, place)
            torch.maximum(y, candidate, out=y)
        return y

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the gradient of the inputs; a window's goes to its first maximum."""
        padded = dy.new_zeros(self._padded_shape).contiguous(memory_format=torch.channels_last)
        for place, target in enumerate(self._offsets(padded)):
            target.add_(dy * (self._best == place))
        down, right = self._layer.padding
        height, width = padded.shape[2:]
        return padded[:, :, down : height - down, right : width - right]

    def _offsets(self, padded: Tensor) -> itertools.chain[Tensor]:
        """Return, for each position in a window, the elements at that position of all windows."""
        (tall, wide), (down, right) = self._layer.kernel, self._layer.stride
        rows = (padded.shape[2] - tall) // down
        columns = (padded.shape[3] - wide) // right
        return itertools.chain(
            padded[:, :, i : i + rows * down + 1 : down, j : j + columns * right + 1 : right]
            for i, j in itertools.product(range(tall), range(wide))
        )


def channels_last(x: Tensor) -> Tensor:
    """Return images in channels-last memory format, and any other tensor unchanged."""
    if x.ndim != 4:
        return x
    _, channels, height, width = x.shape
    if channels == 1 and x.is_contiguous():
        # With one channel both formats are the same memory, and torch would report the other one.
        return x.as_strided(x.shape, (height * width, 1, width, 1))
    return x.contiguous(memory_format=torch.channels_last)
