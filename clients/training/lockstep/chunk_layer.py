"""The port of a chunk's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


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
        """Return the outputs, and store what `backward` needs.

        Args:
            x: inputs.
            step: number of earlier local steps.
        """

    def backward(self, dy: Tensor, step: int) -> Tensor | None:
        """Take the step of SGD; return the gradient of the inputs, None if not needed.

        Args:
            dy: gradient of the outputs.
            step: number of earlier local steps.
        """

    def write(self, update: Tensor, place: int, steps: int) -> None:
        """Write the difference w_start − w_end of one client's parameters.

        Args:
            update: of all parameters, shape (d,).
            place: index of the client in the chunk.
            steps: that it has taken.
        """
