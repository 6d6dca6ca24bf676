"""A chain of layers for all clients of a chunk, and one step of SGD through it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clients.training.lockstep.layers import (
    Chain,
    ChunkLayer,
    Convolution,
    Linear,
    MaxPool,
    MaxPoolPart,
    OrderedMaxPoolPart,
    Relu,
    ReluPart,
    ReshapePart,
    ShapedLayer,
    TensorViews,
    channels_last,
)
from clients.training.lockstep.operations import (
    ClientConvolution,
    SharedLinear,
    StackedConvolution,
    StackedLinear,
)
from clients.training.lockstep.plan import ExecutionPlan, LayerMethod


class Network:
    """The computation of a chunk's step, in fixed buffers.

    All shapes are those of a full chunk with full batches, whatever the clients: a product of other
    shapes may sum in another order, and the bytes of an update would depend on the other clients.
    Unused rows are zeros with weight 0; no row ever meets another client's.

    Attributes:
        inputs: of the step, one row for each sample, client after client.
        targets: 1 at the class of each sample, shape (rows, classes).
        weights: of each sample, shape (rows, 1): one over the size of its batch, or 0.
        active: number of clients, from the first, that still have steps to take.
        shifts: added to the outputs of each sample, shape (rows, classes); None for none.
        probabilities: of the classes in the newest steps, one of shape (rows, classes) for each,
            step after step around; none if nobody asked.
    """

    def __init__(
        self,
        chain: Chain,
        choice: ExecutionPlan,
        places: TensorViews,
        rate: float,
        device: torch.device,
        *,
        calibrated: bool = False,
    ) -> None:
        rows = choice.chunk * choice.batch
        self.inputs = channels_last(torch.zeros(rows, *chain[0].input_shape, device=device))
        self.targets = torch.zeros(rows, *chain[-1].output_shape, device=device)
        self.weights = torch.zeros(rows, 1, device=device)
        self.shifts = torch.zeros_like(self.targets) if calibrated else None
        self.active = choice.chunk
        self.probabilities: Sequence[Tensor] = ()
        builder = _Builder(choice, places, rate, device)
        front = sum(kind is LayerMethod.BY_CLIENT for kind in choice.kinds)
        self._parts: list[ChunkLayer] = []
        if front:
            self._parts.append(_ByClient(self, chain[:front], builder))
        self._parts += [
            builder.part(link, kind)
            for link, kind in zip(chain[front:], choice.kinds[front:], strict=True)
        ]

    def load(self, start: Tensor) -> None:
        """Load the start w_t of all clients' training, shape (d,), unchanged until the next."""
        for part in self._parts:
            part.load(start)

    def step(self, step: int) -> None:
        """Take one step of SGD for every client, with the current inputs, targets and weights."""
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
        """Write the difference w_start − w_end of one client.

        Args:
            update: of all parameters, shape (d,).
        """
        for part in self._parts:
            part.write(update, place, steps)


class _Builder:
    """Makes the layers of a network, in the order of the chain."""

    def __init__(
        self, choice: ExecutionPlan, places: TensorViews, rate: float, device: torch.device
    ) -> None:
        self.choice = choice
        self._places = places
        self._rate = rate
        self._device = device
        self._has_parameters = False

    def part(self, link: ShapedLayer, kind: LayerMethod) -> ChunkLayer:
        """Return the implementation of a layer by a method."""
        layer = link.layer
        if isinstance(layer, Linear | Convolution):
            return self._with_parameters(link, layer, kind)
        if isinstance(layer, Relu):
            return ReluPart()
        if isinstance(layer, MaxPool):
            on_cpu = self._device.type == "cpu"
            return MaxPoolPart(layer) if on_cpu else OrderedMaxPoolPart(layer)
        return ReshapePart(link.input_shape, link.output_shape)

    def parts_by_client(self, links: Sequence[ShapedLayer]) -> list[list[ChunkLayer]]:
        """Return the first layers of a chain for each client of a chunk."""
        by_client: list[list[ChunkLayer]] = []
        for _ in range(self.choice.chunk):
            self._has_parameters = False
            by_client.append([self.part(link, LayerMethod.BY_CLIENT) for link in links])
        return by_client

    def _with_parameters(
        self, link: ShapedLayer, layer: Linear | Convolution, kind: LayerMethod
    ) -> ChunkLayer:
        part: SharedLinear | StackedLinear | ClientConvolution | StackedConvolution
        settings = (self._places, self.choice, self._rate, self._device)
        if isinstance(layer, Linear):
            shape = SharedLinear if kind is LayerMethod.SHARED else StackedLinear
            part = shape(layer, *settings)
        elif kind is LayerMethod.BY_CLIENT:
            part = ClientConvolution(layer, self._places, self._rate)
        else:
            part = StackedConvolution(link, layer, *settings)
        part.is_first = not self._has_parameters
        self._has_parameters = True
        return part


class _ByClient:
    """The first layers of a chain, computed for one client after another.

    A client's data stay in the cache from layer to layer, and convolution kernels reach full speed
    with one client's rows.
    """

    def __init__(self, network: Network, links: Sequence[ShapedLayer], builder: _Builder) -> None:
        self._network = network
        self._batch = builder.choice.batch
        self._clients = builder.parts_by_client(links)
        shape = links[-1].output_shape
        self._y = channels_last(torch.zeros(len(network.inputs), *shape))

    def load(self, start: Tensor) -> None:
        for parts in self._clients:
            for part in parts:
                part.load(start)

    def forward(self, x: Tensor, step: int) -> Tensor:
        """Return the outputs."""
        for place in range(self._network.active):
            rows = self._rows(place)
            y = x[rows]
            for part in self._clients[place]:
                y = part.forward(y, step)
            self._y[rows].copy_(y)
        return self._y

    def backward(self, dy: Tensor, step: int) -> None:
        """Take the step; nothing is returned, as no layer comes before these."""
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
