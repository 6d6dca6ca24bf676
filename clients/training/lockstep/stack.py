"""Matrices of several clients, multiplied in one call."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clients.training.lockstep.layers import Convolution, Linear
from ledger.protocol.rules.distance import Layout

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


class Stack:
    """The matrices [W b 0] of all clients, and the rows [x 1 0] that they multiply.

    A layer's kernels are one row of W each: rows, columns and then channels.

    Attributes:
        rows: of each client, shape (clients, rows, columns); only the input columns may be
            overwritten.

    Args:
        rows: zeros, shape (clients, rows, columns), with room for the column of ones.
    """

    _start: Tensor

    def __init__(self, layer: Linear | Convolution, places: TensorViews, rows: Tensor) -> None:
        self._layer = layer
        self._places = places
        self._shape = row_shape(layer)
        self._inputs = math.prod(self._shape)
        self.rows = rows
        self.rows[:, :, self._inputs] = layer.bias is not None
        outputs = layer.size // self._inputs
        # Zero columns at the end keep every client's matrix aligned and contiguous.
        self._matrices = rows.new_zeros(len(rows), outputs, rows.shape[2])

    @property
    def inputs(self) -> Tensor:
        """The input columns of the rows."""
        return self.rows[:, :, : self._inputs]

    def load(self, start: Tensor) -> None:
        """Load the start of all clients' training, shape (d,), unchanged until the next `load`."""
        self._start = start
        self._weights(self._matrices).copy_(self._weight(start))
        if self._layer.bias is not None:
            self._matrices[:, :, self._inputs] = self._places.of(start, self._layer.bias)

    def outputs(self) -> Tensor:
        """Return x Wᵀ + b for the rows, shape (clients, rows, outputs)."""
        return torch.bmm(self.rows, self._matrices.transpose(1, 2))

    def gradient(self, dy: Tensor) -> Tensor:
        """Return dy W, shape (clients, rows, inputs), for dy of shape (clients, rows, outputs)."""
        return torch.bmm(dy, self._matrices[:, :, : self._inputs])

    def descend(self, dy: Tensor, rate: float) -> None:
        """Take a step of SGD with the output gradient, shape (clients, rows, outputs)."""
        self._matrices.baddbmm_(dy.transpose(1, 2), self.rows, alpha=-rate)

    def write(self, update: Tensor, place: int) -> None:
        """Write the difference w_start − w_end of one client into an update of shape (d,)."""
        end = self._matrices[place]
        torch.sub(self._weight(self._start), self._weights(end), out=self._weight(update))
        if self._layer.bias is not None:
            start, target = (self._places.of(v, self._layer.bias) for v in (self._start, update))
            torch.sub(start, end[:, self._inputs], out=target)

    def _weight(self, vector: Tensor) -> Tensor:
        """Return W of a vector as a view, shape (outputs, *row)."""
        weight = self._places.of(vector, self._layer.weight)
        return weight.permute(0, 2, 3, 1) if weight.ndim == 4 else weight

    def _weights(self, matrices: Tensor) -> Tensor:
        """Return W of matrices as a view, shape (..., outputs, *row)."""
        weights: Tensor = matrices[..., : self._inputs].unflatten(-1, self._shape)
        return weights


def row_shape(layer: Linear | Convolution) -> tuple[int, ...]:
    """Return the shape of one row of a layer's W."""
    if isinstance(layer, Linear):
        return (layer.inputs,)
    _, channels, height, width = layer.kernels
    return (height, width, channels)
