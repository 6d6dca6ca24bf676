"""Views of a flat vector's tensors, and memory alignment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

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
