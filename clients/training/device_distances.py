"""The distances that members publish: compiled on the processor, or by torch on a GPU.

On a GPU, too, they are direct differences in float64. The Gram form a·a + b·b − 2a·b loses all
digits of similar updates, and after centring it loses them to one attacker with a huge update. No
matrix product is involved, so TF32 has no effect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from clients.devices import device_named, reproducible
from ledger.distances.composed_rules import distances_by
from ledger.distances.fast import fast_distances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ledger.distances.composed_rules import Matrix
    from ledger.protocol.rules.distance import Distances

BLOCK = 1 << 16
"""Numbers of an update per GPU kernel, few and large. Determines the order of the sum."""


def engine_distances(device: str, threads: int = 1) -> Distances:
    """Return the counterpart of `plain_distances` on a device, equal within each rule's tolerance.

    Args:
        device: its name in the settings.
        threads: number of cores; ignored on a GPU.

    Raises:
        ConfigurationError: unknown device, or CUDA is not available.
    """
    torch_device = device_named(device)
    return fast_distances(threads) if torch_device.type == "cpu" else torch_distances(torch_device)


def torch_distances(device: torch.device) -> Distances:
    """Return a function that computes all distances of a round by torch.

    The processor as device is for tests: compiled distances are faster there.
    """
    return distances_by(partial(TorchSquares, device))


class TorchSquares:
    """Squared distances of one round's updates, sent to a device block by block.

    Attributes:
        dimension: d.
        members: rows of the members among the updates.
    """

    def __init__(
        self,
        device: torch.device,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        """Store the updates Δ of every client, each of shape (d,), without copying."""
        self.dimension = len(updates[0])
        self.members = members
        self._device = device
        self._updates = updates

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances, shape (members, clients); see `PairSquares.squares`."""
        members = torch.tensor(self.members, device=self._device)
        divisors = None if norms is None else torch.tensor(norms, device=self._device)
        shape = len(self.members), len(self._updates)
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(shape, dtype=torch.float64, device=self._device)
            for block in self._blocks(start, stop):
                deltas = block if divisors is None else block / divisors[:, None]
                total += torch.stack(
                    [(deltas - reference).square_().sum(1) for reference in deltas[members]]
                )
            return total.numpy(force=True)

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(len(self._updates), dtype=torch.float64, device=self._device)
            for block in self._blocks(0, self.dimension):
                total += block.square().sum(1)
            return total.sqrt_().numpy(force=True)

    def _blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield [start, stop) of all updates in float64 blocks, shape (clients, block)."""
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            block = np.stack([update[first:last] for update in self._updates])
            yield torch.from_numpy(block).to(self._device).double()
