"""Linear layers of several clients: one shared matrix with low-rank changes, or one matrix each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clients.training.lockstep.layers import Linear
from clients.training.lockstep.stack import Stack, TensorViews, aligned

if TYPE_CHECKING:
    from clients.training.lockstep.execution_plan import ExecutionPlan


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
