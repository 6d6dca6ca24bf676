"""Linear layers and convolutions of several clients."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from clients.training.lockstep.layers import (
    Convolution,
    Linear,
    ShapedLayer,
    Stack,
    TensorViews,
    aligned,
    channels_last,
    row_shape,
)

if TYPE_CHECKING:
    from clients.training.lockstep.plan import ExecutionPlan


class SharedLinear:
    """Linear layers whose matrices differ from a shared one by a product of two thin factors.

    After s steps of SGD on batches of B rows a client's matrix is W_0 − rate · Uᵀ V, where the rows
    of V are the layer's inputs of all steps and those of U the gradients of its outputs. W_0 is
    stored once and multiplied by the rows of all clients at once; no client's matrix or its
    gradient is formed before the end. In real arithmetic this equals plain SGD; in floating point
    it is more exact, as the change is not rounded into the matrix at every step.
    """

    _start: Tensor
    _matrix: Tensor  # W_0, shape (outputs, inputs)

    def __init__(
        self,
        layer: Linear,
        places: TensorViews,
        choice: ExecutionPlan,
        rate: float,
        device: torch.device,
    ) -> None:
        self._layer = layer
        self._places = places
        self._rate = rate
        self._batch = choice.batch
        self._clients = clients = choice.chunk
        rank = choice.steps * choice.batch
        self._inputs = torch.zeros(clients, rank, layer.inputs, device=device)  # V
        self._gradients = torch.zeros(clients, rank, layer.outputs, device=device)  # U
        self._biases = torch.zeros(clients, 1, aligned(layer.outputs), device=device)
        self._biases = self._biases[:, :, : layer.outputs]
        self._ones = torch.ones(clients, 1, choice.batch, device=device)
        rows = clients * choice.batch
        self._y = torch.zeros(rows, layer.outputs, device=device)
        self._dx = torch.zeros(rows, layer.inputs, device=device)
        self.is_first = False

    def load(self, start: Tensor) -> None:
        self._start = start
        self._matrix = self._places.of(start, self._layer.weight)
        if self._layer.bias is not None:
            self._biases.copy_(self._places.of(start, self._layer.bias))

    def forward(self, x: Tensor, step: int) -> Tensor:
        """Return x W_0ᵀ + b − rate · (x Vᵀ) U."""
        by_client = x.view(self._clients, self._batch, -1)
        torch.mm(x, self._matrix.t(), out=self._y)
        y = self._y.view(self._clients, self._batch, -1)
        y.add_(self._biases)
        self._add_change(y, by_client, (self._inputs, self._gradients), step)
        self._inputs[:, self._rows(step)].copy_(by_client)
        return self._y

    def backward(self, dy: Tensor, step: int) -> Tensor | None:
        """Store the factors of this step; return dy W_0 − rate · (dy Uᵀ) V."""
        by_client = dy.view(self._clients, self._batch, -1)
        if not self.is_first:
            torch.mm(dy, self._matrix, out=self._dx)
            dx = self._dx.view(self._clients, self._batch, -1)
            self._add_change(dx, by_client, (self._gradients, self._inputs), step)
        self._gradients[:, self._rows(step)].copy_(by_client)
        if self._layer.bias is not None:
            self._biases.baddbmm_(self._ones, by_client, alpha=-self._rate)
        return None if self.is_first else self._dx

    def write(self, update: Tensor, place: int, steps: int) -> None:
        """Write rate · Uᵀ V, and the difference of the biases."""
        rows = slice(0, steps * self._batch)
        target = self._places.of(update, self._layer.weight)
        inputs, gradients = self._inputs[place, rows], self._gradients[place, rows]
        torch.addmm(target, gradients.t(), inputs, beta=0, alpha=self._rate, out=target)
        if self._layer.bias is not None:
            start, end = self._places.of(self._start, self._layer.bias), self._biases[place, 0]
            torch.sub(start, end, out=self._places.of(update, self._layer.bias))

    def _add_change(self, y: Tensor, x: Tensor, factors: tuple[Tensor, Tensor], step: int) -> None:
        if step:
            before = slice(0, step * self._batch)
            right, left = (factor[:, before] for factor in factors)
            y.baddbmm_(torch.bmm(x, right.transpose(1, 2)), left, alpha=-self._rate)

    def _rows(self, step: int) -> slice:
        return slice(step * self._batch, (step + 1) * self._batch)


class StackedLinear:
    """Linear layers with a matrix per client."""

    def __init__(
        self,
        layer: Linear,
        places: TensorViews,
        choice: ExecutionPlan,
        rate: float,
        device: torch.device,
    ) -> None:
        rows = torch.zeros(choice.chunk, choice.batch, aligned(layer.inputs + 1), device=device)
        self._stack = Stack(layer, places, rows)
        self._rate = rate
        self.is_first = False

    def load(self, start: Tensor) -> None:
        self._stack.load(start)

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return x Wᵀ + b."""
        inputs = self._stack.inputs
        inputs.copy_(x.view(inputs.shape))
        return self._stack.outputs().view(len(x), -1)

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        """Take the step; return dy W."""
        by_client = dy.view(len(self._stack.rows), -1, dy.shape[1])
        dx = None if self.is_first else self._stack.gradient(by_client).view(len(dy), -1)
        self._stack.descend(by_client, self._rate)
        return dx

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: ARG002
        """Write the difference of matrix and biases."""
        self._stack.write(update, place)


class ClientConvolution:
    """The convolution of one client, by torch's own kernels, channels last."""

    _start: Tensor
    _x: Tensor

    def __init__(self, layer: Convolution, places: TensorViews, rate: float) -> None:
        self._layer = layer
        self._places = places
        self._rate = rate
        self._weight = torch.empty(layer.kernels, memory_format=torch.channels_last)
        self._bias = None if layer.bias is None else torch.empty(layer.kernels[0])
        self.is_first = False

    def load(self, start: Tensor) -> None:
        self._start = start
        self._weight.copy_(self._places.of(start, self._layer.weight))
        if self._bias is not None and self._layer.bias is not None:
            self._bias.copy_(self._places.of(start, self._layer.bias))

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the outputs."""
        self._x = x
        layer = self._layer
        y = functional.conv2d(
            x, self._weight, self._bias, layer.stride, layer.padding, layer.dilation
        )
        return channels_last(y)

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        """Take the step; return the gradient of the inputs."""
        layer = self._layer
        dx: Tensor | None
        dx, weight, bias = torch.ops.aten.convolution_backward(
            channels_last(dy),
            self._x,
            self._weight,
            None if self._bias is None else list(self._bias.shape),
            layer.stride,
            layer.padding,
            layer.dilation,
            False,  # transposed
            [0, 0],
            1,  # groups
            [not self.is_first, True, self._bias is not None],
        )
        self._weight.sub_(weight, alpha=self._rate)
        if self._bias is not None:
            self._bias.sub_(bias, alpha=self._rate)
        return dx

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: ARG002
        """Write the difference of kernels and biases."""
        for name, end in ((self._layer.weight, self._weight), (self._layer.bias, self._bias)):
            if name is not None and end is not None:
                start = self._places.of(self._start, name)
                torch.sub(start, end, out=self._places.of(update, name))


class StackedConvolution:
    """Convolutions as matrix products: the elements under a kernel are one row.

    Args:
        link: the layer with the shapes of its images.
    """

    def __init__(
        self,
        link: ShapedLayer,
        layer: Convolution,
        places: TensorViews,
        choice: ExecutionPlan,
        rate: float,
        device: torch.device,
    ) -> None:
        self._layer = layer
        self._rate = rate
        self._clients = clients = choice.chunk
        samples = clients * choice.batch
        channels, height, width = link.input_shape
        self._output_shape = (samples, *link.output_shape[1:], layer.kernels[0])
        (down, right), (_, _, *kernel) = layer.padding, layer.kernels
        bordered = (samples, height + 2 * down, width + 2 * right, channels)
        self._x = torch.zeros(bordered, device=device)
        self._dx = torch.zeros(bordered, device=device)
        self._inside = (
            slice(None), slice(down, down + height), slice(right, right + width)
        )  # fmt: skip
        places_in_kernel = math.prod(link.output_shape[1:])
        columns = aligned(math.prod(row_shape(layer)) + 1)
        rows = torch.zeros(clients, choice.batch * places_in_kernel, columns, device=device)
        self._stack = Stack(layer, places, rows)
        self._windows_shape = (*self._output_shape[:3], *kernel, channels)
        self.is_first = False

    def load(self, start: Tensor) -> None:
        self._stack.load(start)

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return the outputs."""
        self._x[self._inside] = x.permute(0, 2, 3, 1)
        rows = self._stack.inputs.unflatten(2, row_shape(self._layer))
        windows = self._windows(self._x)
        rows.unflatten(1, (-1, *windows.shape[1:3])).copy_(
            windows.unflatten(0, (self._clients, -1))
        )
        return self._stack.outputs().view(self._output_shape).permute(0, 3, 1, 2)

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        """Take the step; return the gradient of the inputs."""
        by_client = dy.permute(0, 2, 3, 1).reshape(self._clients, -1, dy.shape[1])
        dx = None
        if not self.is_first:
            dx = self._summed(self._stack.gradient(by_client))
        self._stack.descend(by_client, self._rate)
        return dx

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: ARG002
        """Write the difference of kernels and biases."""
        self._stack.write(update, place)

    def _windows(self, images: Tensor) -> Tensor:
        """Return the elements under the kernel at each position, as a view of images."""
        sample, row, column, channel = images.stride()
        (down, right), (tall, wide) = self._layer.stride, self._layer.dilation
        strides = (sample, row * down, column * right, row * tall, column * wide, channel)
        return images.as_strided(self._windows_shape, strides)

    def _summed(self, rows: Tensor) -> Tensor:
        """Return the sum of all windows' elements at each pixel."""
        self._dx.zero_()
        windows, parts = self._windows(self._dx), rows.view(self._windows_shape)
        # One kernel position after another: the windows of one position never overlap.
        for i, j in itertools.product(*map(range, self._layer.kernels[2:])):
            windows[:, :, :, i, j].add_(parts[:, :, :, i, j])
        return self._dx[self._inside].permute(0, 3, 1, 2)
