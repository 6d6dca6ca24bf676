"""Layers without parameters: ReLU, max-pooling and reshaping."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

from clients.training.lockstep.layers import MaxPool


class _WithoutParameters:
    """Base class of layers without parameters."""

    def load(self, start: Tensor) -> None:
        """Do nothing."""

    def write(self, update: Tensor, place: int, steps: int) -> None:
        """Do nothing."""


class ReluPart(_WithoutParameters):
    """max(x, 0)."""

    _y: Tensor

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the outputs."""
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
        """Return the outputs."""
        return channels_last(x.reshape(-1, *self._after))

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the gradient of the inputs."""
        return channels_last(dy.reshape(-1, *self._before))


class MaxPoolPart(_WithoutParameters):
    """Max-pooling by torch's own kernel."""

    _x: Tensor
    _chosen: Tensor

    def __init__(self, layer: MaxPool) -> None:
        self._windows = [list(layer.kernel), list(layer.stride), list(layer.padding), [1, 1]]

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the outputs."""
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
        """Return the outputs."""
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
