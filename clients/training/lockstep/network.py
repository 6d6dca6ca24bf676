"""The layers of all clients of a chunk, and one step of SGD through a chain of them."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from clients.training.lockstep.plan import (
    Chain,
    Convolution,
    ExecutionPlan,
    LayerMethod,
    Linear,
    MaxPool,
    Relu,
    Reshape,
    ShapedLayer,
    aligned,
)
from ledger.protocol.rules.distance import Layout


class Chunk:
    """Common inputs of a chunk's layers: its plan, SGD's learning rate, and tensors by name."""

    def __init__(
        self, plan: ExecutionPlan, layout: Layout, rate: float, device: torch.device
    ) -> None:
        self.plan, self.rate, self.device = plan, rate, device
        self._places: dict[str, tuple[slice, tuple[int, ...]]] = {}
        first = 0
        for name, shape in layout:
            last = first + math.prod(shape)
            self._places[name] = slice(first, last), tuple(shape)
            first = last

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, device=self.device)

    def view(self, vector: Tensor, name: str) -> Tensor:
        place, shape = self._places[name]
        return vector[place].view(shape)

    def subtract(self, start: Tensor, name: str, end: Tensor, update: Tensor) -> None:
        torch.sub(self.view(start, name), end, out=self.view(update, name))


class Network:
    """The computation of a chunk's step, in fixed buffers.

    Shapes always fit a full chunk with full batches, whatever the clients: a product of other
    shapes may sum in another order. Unused rows are zeros with weight 0.
    """

    def __init__(self, chain: Chain, chunk: Chunk, *, calibrated: bool = False) -> None:
        kinds, rows = chunk.plan.kinds, chunk.plan.chunk * chunk.plan.batch
        # One row for each sample, client after client.
        self.inputs = channels_last(chunk.zeros(rows, *chain[0].input_shape))
        self.targets = chunk.zeros(rows, *chain[-1].output_shape)  # 1 at the class of each sample
        self.weights = chunk.zeros(rows, 1)  # one over the size of a sample's batch, or 0
        # Added to the outputs, shape (rows, classes).
        self.shifts = torch.zeros_like(self.targets) if calibrated else None
        self.active = chunk.plan.chunk  # clients, from the first, that still have steps to take
        # Ring of the classes' probabilities, (rows, classes) a step; may be empty.
        self.probabilities: Sequence[Tensor] = ()
        front = sum(kind is LayerMethod.BY_CLIENT for kind in kinds)
        self._parts: list[ChunkLayer] = []
        if front:
            self._parts.append(_ByClient(self, chain[:front], chunk))
        has_parameters = any(isinstance(link.layer, Linear | Convolution) for link in chain[:front])
        self._parts += parts_of(chain[front:], kinds[front:], chunk, is_first=not has_parameters)

    def load(self, start: Tensor) -> None:
        for part in self._parts:
            part.load(start)

    def step(self, step: int) -> None:
        x = self.inputs
        for part in self._parts:
            x = part.forward(x, step)
        predicted = torch.softmax(x if self.shifts is None else x + self.shifts, dim=1)
        if self.probabilities:
            self.probabilities[step % len(self.probabilities)].copy_(predicted)
        # The gradient of the mean cross-entropy.
        gradient: Tensor | None = predicted.sub_(self.targets).mul_(self.weights)
        for part in reversed(self._parts):
            if gradient is None:
                break  # no earlier layer has parameters
            gradient = part.backward(gradient, step)

    def write(self, update: Tensor, place: int, steps: int) -> None:
        for part in self._parts:
            part.write(update, place, steps)


class ChunkLayer(ABC):
    """Layers with each client's parameters; rows are samples by client, images channels-last."""

    def load(self, start: Tensor) -> None:  # noqa: B027 - most layers have no parameters
        """Load the start w_t of all clients' training, shape (d,), unchanged until the next one."""

    @abstractmethod
    def forward(self, x: Tensor, step: int) -> Tensor:
        """Return the outputs, and store what `backward` needs."""

    @abstractmethod
    def backward(self, dy: Tensor, step: int) -> Tensor | None:
        """Take the step of SGD; return the gradient of the inputs, None if not needed."""

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: B027
        """Write w_start − w_end of one client's parameters into an update, shape (d,)."""


def parts_of(
    links: Sequence[ShapedLayer], kinds: Sequence[LayerMethod], chunk: Chunk, *, is_first: bool
) -> list[ChunkLayer]:
    """Return the implementations of layers; the first ones have no parameters before them."""
    parts: list[ChunkLayer] = []
    for link, kind in zip(links, kinds, strict=True):
        layer = link.layer
        match layer:
            case Linear() if kind is LayerMethod.SHARED:
                parts.append(SharedLinear(layer, chunk, is_first=is_first))
            case Linear():
                parts.append(StackedLinear(layer, chunk, is_first=is_first))
            case Convolution() if kind is LayerMethod.BY_CLIENT:
                parts.append(ClientConvolution(layer, chunk, is_first=is_first))
            case Convolution():
                parts.append(StackedConvolution(link, layer, chunk, is_first=is_first))
            case Relu():
                parts.append(ReluPart())
            case MaxPool():
                on_cpu = chunk.device.type == "cpu"
                parts.append(MaxPoolPart(layer) if on_cpu else OrderedMaxPoolPart(layer))
            case Reshape():
                parts.append(ReshapePart(link.input_shape, link.output_shape))
        is_first = is_first and not isinstance(layer, Linear | Convolution)
    return parts


class _ByClient(ChunkLayer):
    """The first layers of a chain, one client after another, whose data stay in the cache."""

    def __init__(self, network: Network, links: Sequence[ShapedLayer], chunk: Chunk) -> None:
        self._network = network
        self._batch = chunk.plan.batch
        kinds = [LayerMethod.BY_CLIENT] * len(links)
        self._clients = [
            parts_of(links, kinds, chunk, is_first=True) for _ in range(chunk.plan.chunk)
        ]
        self._y = channels_last(torch.zeros(len(network.inputs), *links[-1].output_shape))

    def load(self, start: Tensor) -> None:
        for parts in self._clients:
            for part in parts:
                part.load(start)

    def forward(self, x: Tensor, step: int) -> Tensor:
        for place in range(self._network.active):
            rows = self._rows(place)
            y = x[rows]
            for part in self._clients[place]:
                y = part.forward(y, step)
            self._y[rows].copy_(y)
        return self._y

    def backward(self, dy: Tensor, step: int) -> None:
        for place in range(self._network.active):
            gradient: Tensor | None = dy[self._rows(place)]
            for part in reversed(self._clients[place]):
                if gradient is None:
                    break
                gradient = part.backward(gradient, step)

    def write(self, update: Tensor, place: int, steps: int) -> None:
        for part in self._clients[place]:
            part.write(update, place, steps)

    def _rows(self, place: int) -> slice:
        return slice(place * self._batch, (place + 1) * self._batch)


class ReluPart(ChunkLayer):
    """max(x, 0), with gradient 0 at 0."""

    _y: Tensor

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        self._y = torch.relu(x)
        return self._y

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        gradient: Tensor = torch.ops.aten.threshold_backward(dy, self._y, 0)
        return gradient


class ReshapePart(ChunkLayer):
    """Another shape of each sample; its elements stay in the order of channels, rows, columns."""

    def __init__(self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> None:
        self._before, self._after = input_shape, output_shape

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        return channels_last(x.reshape(-1, *self._after))

    def backward(self, dy: Tensor, step: int) -> Tensor:  # noqa: ARG002
        return channels_last(dy.reshape(-1, *self._before))


class MaxPoolPart(ChunkLayer):
    """Max-pooling by torch's own kernel; a window's gradient goes to its first maximum."""

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
        gradient: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            dy, self._x, *self._windows, False, self._chosen
        )
        return gradient


class OrderedMaxPoolPart(ChunkLayer):
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


class SharedLinear(ChunkLayer):
    """Linear layers whose matrices differ from a shared one by a product of two thin factors.

    After s steps of SGD on batches of B rows a client's matrix is W_0 − rate · Uᵀ V. The rows of V
    are the layer's inputs of all steps, and the rows of U are the gradients of its outputs. No
    client's matrix is formed before the end. In floating point this is more exact than plain SGD,
    which rounds the change into the matrix at every step.
    """

    _start: Tensor
    _matrix: Tensor  # W_0, shape (outputs, inputs)

    def __init__(self, layer: Linear, chunk: Chunk, *, is_first: bool) -> None:
        self._layer, self._chunk, self._is_first = layer, chunk, is_first
        self._batch, self._clients = chunk.plan.batch, chunk.plan.chunk
        rank = chunk.plan.steps * self._batch
        self._inputs = chunk.zeros(self._clients, rank, layer.inputs)  # V
        self._gradients = chunk.zeros(self._clients, rank, layer.outputs)  # U
        self._biases = chunk.zeros(self._clients, 1, aligned(layer.outputs))
        self._biases = self._biases[:, :, : layer.outputs]
        self._ones = torch.ones(self._clients, 1, self._batch, device=chunk.device)
        self._y = chunk.zeros(self._clients * self._batch, layer.outputs)
        self._dx = chunk.zeros(self._clients * self._batch, layer.inputs)

    def load(self, start: Tensor) -> None:
        self._start = start
        self._matrix = self._chunk.view(start, self._layer.weight)
        if self._layer.bias is not None:
            self._biases.copy_(self._chunk.view(start, self._layer.bias))

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
        if not self._is_first:
            torch.mm(dy, self._matrix, out=self._dx)
            dx = self._dx.view(self._clients, self._batch, -1)
            self._add_change(dx, by_client, (self._gradients, self._inputs), step)
        self._gradients[:, self._rows(step)].copy_(by_client)
        if self._layer.bias is not None:
            self._biases.baddbmm_(self._ones, by_client, alpha=-self._chunk.rate)
        return None if self._is_first else self._dx

    def write(self, update: Tensor, place: int, steps: int) -> None:
        rows = slice(0, steps * self._batch)
        target = self._chunk.view(update, self._layer.weight)
        inputs, gradients = self._inputs[place, rows], self._gradients[place, rows]
        torch.addmm(target, gradients.t(), inputs, beta=0, alpha=self._chunk.rate, out=target)
        if self._layer.bias is not None:
            self._chunk.subtract(self._start, self._layer.bias, self._biases[place, 0], update)

    def _add_change(self, y: Tensor, x: Tensor, factors: tuple[Tensor, Tensor], step: int) -> None:
        if step:
            before = slice(0, step * self._batch)
            right, left = (factor[:, before] for factor in factors)
            y.baddbmm_(torch.bmm(x, right.transpose(1, 2)), left, alpha=-self._chunk.rate)

    def _rows(self, step: int) -> slice:
        return slice(step * self._batch, (step + 1) * self._batch)


class _Stacked(ChunkLayer):
    """The matrices [W b 0] of all clients, and the rows [x 1 0] that each multiplies.

    A layer's kernels are one row of W each: rows, columns and then channels.
    """

    _start: Tensor

    def __init__(
        self, layer: Linear | Convolution, chunk: Chunk, rows: int, *, is_first: bool
    ) -> None:
        self._weighted, self._chunk, self._is_first = layer, chunk, is_first
        self._shape = layer.row_shape
        self._inputs = math.prod(self._shape)
        clients, columns = chunk.plan.chunk, aligned(self._inputs + 1)
        self._rows = chunk.zeros(clients, rows, columns)
        self._rows[:, :, self._inputs] = layer.bias is not None
        # Zero columns at the end keep every client's matrix aligned and contiguous.
        self._matrices = chunk.zeros(clients, layer.size // self._inputs, columns)

    def load(self, start: Tensor) -> None:
        self._start = start
        self._weights(self._matrices).copy_(self._weight(start))
        if self._weighted.bias is not None:
            bias = self._chunk.view(start, self._weighted.bias)
            self._matrices[:, :, self._inputs] = bias

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: ARG002
        end = self._matrices[place]
        torch.sub(self._weight(self._start), self._weights(end), out=self._weight(update))
        if self._weighted.bias is not None:
            self._chunk.subtract(self._start, self._weighted.bias, end[:, self._inputs], update)

    @property
    def _input_columns(self) -> Tensor:
        return self._rows[:, :, : self._inputs]

    def _outputs(self) -> Tensor:
        return torch.bmm(self._rows, self._matrices.transpose(1, 2))

    def _descended(self, dy: Tensor) -> Tensor | None:
        """Take the step, and return dy W; dy has the shape (clients, rows, outputs)."""
        dx = None if self._is_first else torch.bmm(dy, self._matrices[:, :, : self._inputs])
        self._matrices.baddbmm_(dy.transpose(1, 2), self._rows, alpha=-self._chunk.rate)
        return dx

    def _weight(self, vector: Tensor) -> Tensor:
        """Return W of a vector as a view, shape (outputs, *row)."""
        weight = self._chunk.view(vector, self._weighted.weight)
        return weight.permute(0, 2, 3, 1) if weight.ndim == 4 else weight

    def _weights(self, matrices: Tensor) -> Tensor:
        """Return W of matrices as a view, shape (..., outputs, *row)."""
        weights: Tensor = matrices[..., : self._inputs].unflatten(-1, self._shape)
        return weights


class StackedLinear(_Stacked):
    """Linear layers with a matrix per client."""

    def __init__(self, layer: Linear, chunk: Chunk, *, is_first: bool) -> None:
        super().__init__(layer, chunk, chunk.plan.batch, is_first=is_first)

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        inputs = self._input_columns
        inputs.copy_(x.view(inputs.shape))
        return self._outputs().view(len(x), -1)

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        dx = self._descended(dy.view(len(self._rows), -1, dy.shape[1]))
        return None if dx is None else dx.view(len(dy), -1)


class ClientConvolution(ChunkLayer):
    """The convolution of one client, by torch's own kernels, channels last."""

    _start: Tensor
    _x: Tensor

    def __init__(self, layer: Convolution, chunk: Chunk, *, is_first: bool) -> None:
        self._layer, self._chunk, self._is_first = layer, chunk, is_first
        self._geometry = layer.stride, layer.padding, layer.dilation
        self._weight = torch.empty(layer.kernels, memory_format=torch.channels_last)
        self._bias = None if layer.bias is None else torch.empty(layer.kernels[0])

    def load(self, start: Tensor) -> None:
        self._start = start
        self._weight.copy_(self._chunk.view(start, self._layer.weight))
        if self._bias is not None and self._layer.bias is not None:
            self._bias.copy_(self._chunk.view(start, self._layer.bias))

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        self._x = x
        return channels_last(functional.conv2d(x, self._weight, self._bias, *self._geometry))

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        dx: Tensor | None
        dx, weight, bias = torch.ops.aten.convolution_backward(
            channels_last(dy),
            self._x,
            self._weight,
            None if self._bias is None else list(self._bias.shape),
            *self._geometry,
            False,  # transposed
            [0, 0],
            1,  # groups
            [not self._is_first, True, self._bias is not None],
        )
        self._weight.sub_(weight, alpha=self._chunk.rate)
        if self._bias is not None:
            self._bias.sub_(bias, alpha=self._chunk.rate)
        return dx

    def write(self, update: Tensor, place: int, steps: int) -> None:  # noqa: ARG002
        for name, end in ((self._layer.weight, self._weight), (self._layer.bias, self._bias)):
            if name is not None and end is not None:
                self._chunk.subtract(self._start, name, end, update)


class StackedConvolution(_Stacked):
    """Convolutions as matrix products: the elements under a kernel are one row."""

    def __init__(
        self, link: ShapedLayer, layer: Convolution, chunk: Chunk, *, is_first: bool
    ) -> None:
        places_in_kernel = math.prod(link.output_shape[1:])
        super().__init__(layer, chunk, chunk.plan.batch * places_in_kernel, is_first=is_first)
        self._layer = layer
        self._clients = chunk.plan.chunk
        samples = self._clients * chunk.plan.batch
        channels, height, width = link.input_shape
        self._output_shape = (samples, *link.output_shape[1:], layer.kernels[0])
        (down, right), (_, _, *kernel) = layer.padding, layer.kernels
        bordered = (samples, height + 2 * down, width + 2 * right, channels)
        self._x, self._dx = chunk.zeros(*bordered), chunk.zeros(*bordered)
        self._inside = (slice(None), slice(down, down + height), slice(right, right + width))
        self._windows_shape = (*self._output_shape[:3], *kernel, channels)

    def forward(self, x: Tensor, step: int) -> Tensor:  # noqa: ARG002
        self._x[self._inside] = x.permute(0, 2, 3, 1)
        rows = self._input_columns.unflatten(2, self._shape)
        windows = self._windows(self._x)
        rows.unflatten(1, (-1, *windows.shape[1:3])).copy_(
            windows.unflatten(0, (self._clients, -1))
        )
        return self._outputs().view(self._output_shape).permute(0, 3, 1, 2)

    def backward(self, dy: Tensor, step: int) -> Tensor | None:  # noqa: ARG002
        by_client = dy.permute(0, 2, 3, 1).reshape(self._clients, -1, dy.shape[1])
        dx = self._descended(by_client)
        if dx is None:
            return None
        self._dx.zero_()
        windows, parts = self._windows(self._dx), dx.view(self._windows_shape)
        # One kernel position after another: the windows of one position never overlap.
        for i, j in itertools.product(*map(range, self._layer.kernels[2:])):
            windows[:, :, :, i, j].add_(parts[:, :, :, i, j])
        return self._dx[self._inside].permute(0, 3, 1, 2)

    def _windows(self, images: Tensor) -> Tensor:
        """Return the elements under the kernel at each position, as a view of images."""
        sample, row, column, channel = images.stride()
        (down, right), (tall, wide) = self._layer.stride, self._layer.dilation
        strides = (sample, row * down, column * right, row * tall, column * wide, channel)
        return images.as_strided(self._windows_shape, strides)


def channels_last(x: Tensor) -> Tensor:
    """Return images in channels-last memory format, and any other tensor unchanged."""
    if x.ndim != 4:
        return x
    _, channels, height, width = x.shape
    if channels == 1 and x.is_contiguous():
        # With one channel both formats are the same memory, and torch would report the other one.
        return x.as_strided(x.shape, (height * width, 1, width, 1))
    return x.contiguous(memory_format=torch.channels_last)
