"""Where the parameters of a layer stand in the flat vector, and how memory is aligned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ledger.protocol.rules.distance.rule import Layout

_LINE = 16  # float32 numbers in 64 bytes, to which torch aligns what it allocates


class TensorViews:
    """The tensors of a flat vector by name.

    Args:
        layout: name and shape of each, in the order of the vector.
    """

    def __init__(self, layout: Layout) -> None:
        self._places: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        first = 0
        for name, shape in layout:
            last = first + math.prod(shape)
            self._places[name] = (first, last, tuple(shape))
            first = last

    def of(self, vector: torch.Tensor, name: str) -> torch.Tensor:
        """Return a tensor as a view of a vector.

        Args:
            vector: shape (d,).
            name: of the tensor.
        """
        first, last, shape = self._places[name]
        return vector[first:last].view(shape)


def aligned(numbers: int) -> int:
    """Return the next count of numbers after which memory is aligned as at its beginning.

    A kernel may sum in another order at another alignment, and then the bytes of an update would
    depend on its client's place in the chunk.

    Args:
        numbers: float32 numbers.
    """
    return math.ceil(numbers / _LINE) * _LINE
