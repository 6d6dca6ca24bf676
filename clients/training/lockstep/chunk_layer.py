"""What a part of the network does in a step: the port of all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class ChunkLayer(Protocol):
    """A layer, or several, with the parameters of each client of a chunk.

    Inputs and outputs have one row for each sample, client after client. Images are tensors
    (rows, channels, height, width) whose channels lie next to each other in memory.
    """

    def load(self, start: Tensor) -> None:
        """Begin anew for all clients.

        Args:
            start: the global model w_t, shape (d,), unchanged until the next `load`.
        """

    def forward(self, x: Tensor, step: int) -> Tensor:
        """Return the outputs, and keep what `backward` needs.

        Args:
            x: inputs.
            step: local steps already taken.
        """

    def backward(self, dy: Tensor, step: int) -> Tensor | None:
        """Take the step of SGD, and return the gradient of the inputs from before it.

        Args:
            dy: gradient of the outputs.
            step: local steps already taken.

        Returns:
            The gradient; None where nobody has asked for it.
        """

    def write(self, update: Tensor, place: int, steps: int) -> None:
        """Write the difference w_start − w_end of one client's parameters.

        Args:
            update: of all parameters, shape (d,).
            place: the client's, in the chunk.
            steps: that it has taken.
        """
