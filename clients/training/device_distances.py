"""The distances that members publish: compiled on the processor, or by torch on a GPU.

On a GPU, too, they are direct differences in float64: the Gram form a·a + b·b − 2a·b loses every
digit when updates are much alike, and centring it first loses them to one attacker with a huge
update. No product of matrices is taken, so that TF32 has no part in it.
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
    from ledger.protocol.rules.distance.rule import Distances

BLOCK = 1 << 16
"""Numbers of an update that a GPU takes at a time: few and large kernels count. Orders the sum."""


def engine_distances(device: str, threads: int = 1) -> Distances:
    """Return what computes all distances of a round on a device.

    Args:
        device: "cpu", "cuda" or "auto".
        threads: cores that may be used; of no account on a GPU.

    Returns:
        The twin of `plain_distances`, equal to it within each rule's own tolerance.

    Raises:
        ConfigurationError: unknown device, or CUDA asked for where there is none.
    """
    where = device_named(device)
    return fast_distances(threads) if where.type == "cpu" else torch_distances(where)


def torch_distances(device: torch.device) -> Distances:
    """Return what computes all distances of a round by torch.

    Args:
        device: where, which is the processor only in tests: compiled distances are quicker there.
    """
    return distances_by(partial(TorchSquares, device))


class TorchSquares:
    """The updates of one round, brought to a device block by block.

    Attributes:
        dimension: d.
        members: places of the members among the updates.
    """

    def __init__(
        self,
        device: torch.device,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        """Take the updates in hand.

        Args:
            device: where to compute.
            updates: Δ of every client, each of shape (d,).
            members: places of the members among them.
        """
        self.dimension = len(updates[0])
        self.members = members
        self._device = device
        self._updates = updates

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates from all members', over [start, stop).

        Args:
            start: first number of the updates that counts.
            stop: first one after it that does not.
            norms: what each update is divided by first, shape (clients,); None for nothing.

        Returns:
            Shape (members, clients).
        """
        members = torch.tensor(self.members, device=self._device)
        divisors = None if norms is None else torch.tensor(norms, device=self._device)
        shape = len(self.members), len(self._updates)
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(shape, dtype=torch.float64, device=self._device)
            for block in self._blocks(start, stop):
                deltas = block if divisors is None else block / divisors[:, None]
                total += torch.stack([(deltas - one).square_().sum(1) for one in deltas[members]])
            return total.numpy(force=True)

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(len(self._updates), dtype=torch.float64, device=self._device)
            for block in self._blocks(0, self.dimension):
                total += block.square().sum(1)
            return total.sqrt_().numpy(force=True)

    def _blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield [start, stop) of all updates in blocks, float64, shape (clients, block)."""
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            block = np.stack([update[first:last] for update in self._updates])
            yield torch.from_numpy(block).to(self._device).double()
