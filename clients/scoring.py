"""Distances between updates on CPU or GPU: the fast twins of the protocol's distance rules.

They are direct differences summed in float64: the Gram form a·a + b·b − 2a·b loses every digit
when updates are much alike, and centring it first loses them to one attacker with a huge update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from clients.devices import device_named, reproducible
from ledger.protocol.rules.distance.direction import DIRECTION, NOWHERE
from ledger.protocol.rules.distance.l2 import L2
from ledger.protocol.rules.distance.per_tensor import PER_TENSOR
from ledger.protocol.rules.distance.rule import (
    DistanceRule,
    Distances,
    Layout,
    plain_distances,
)
from ledger.protocol.rules.distance.squared import SQUARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.protocol.types import ClientId

# Numbers of an update at a time: on a CPU 64 updates' worth of float64 fit in a core's cache, on
# a GPU fewer and larger kernels count. Fixed, and not made to fit the number of updates, because
# it orders the sum.
_BLOCKS = {"cpu": 2048, "cuda": 65_536}

Matrix = torch.Tensor
"""float64, shape (members, clients) where nothing else is said."""


class UpdateBlocks:
    """The updates of one round, read block by block.

    Args:
        updates: Δ of every client, each of shape (d,).
        members: places of the members among them.
        device: where the blocks go.
    """

    def __init__(
        self, updates: Sequence[NDArray[np.float32]], members: Sequence[int], device: torch.device
    ) -> None:
        self._updates = updates
        self.device = device
        self.members = torch.tensor(members, dtype=torch.int64, device=device)
        self.count = len(updates)
        self.dimension = len(updates[0])

    def blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield [start, stop) of all updates in blocks, float64, shape (clients, block)."""
        length = _BLOCKS[self.device.type]
        for first in range(start, stop, length):
            last = min(first + length, stop)
            block = np.stack([update[first:last] for update in self._updates])
            yield torch.tensor(block, device=self.device).double()

    def squares(self, start: int, stop: int, scales: torch.Tensor | None = None) -> Matrix:
        """Return the squared distances of all updates to all members', over [start, stop).

        A pair's distance has the same bytes whichever other updates there are.

        Args:
            start: first number of the updates that counts.
            stop: first one after it that does not.
            scales: what each update is divided by first, shape (clients,); None for nothing.
        """
        total = torch.zeros(len(self.members), self.count, dtype=torch.float64, device=self.device)
        for block in self.blocks(start, stop):
            deltas = block if scales is None else block / scales[:, None]
            references = deltas[self.members]
            total += torch.stack([(deltas - one).square_().sum(1) for one in references])
        return total


Kernel = Callable[[UpdateBlocks, Layout], Matrix]


def squared(among: UpdateBlocks, layout: Layout) -> Matrix:  # noqa: ARG001 - one signature for all
    """Return ‖Δ_k − Δ_c‖².

    Args:
        among: the updates.
        layout: not used.
    """
    return among.squares(0, among.dimension)


def l2(among: UpdateBlocks, layout: Layout) -> Matrix:  # noqa: ARG001
    """Return ‖Δ_k − Δ_c‖.

    Args:
        among: the updates.
        layout: not used.
    """
    return among.squares(0, among.dimension).sqrt_()


def per_tensor(among: UpdateBlocks, layout: Layout) -> Matrix:
    """Return the sum of the tensors' ‖Δ_k − Δ_c‖, in layout order.

    Args:
        among: the updates.
        layout: the tensors that a flat update joins.
    """
    ends = accumulate((prod(shape) for _, shape in layout), initial=0)
    total = torch.zeros(len(among.members), among.count, dtype=torch.float64, device=among.device)
    for start, stop in pairwise(ends):
        total += among.squares(start, stop).sqrt_()
    return total


def direction(among: UpdateBlocks, layout: Layout) -> Matrix:  # noqa: ARG001
    """Return the squared distances of directions, times the length factor of each client.

    Args:
        among: the updates.
        layout: not used.
    """
    squares = torch.zeros(among.count, dtype=torch.float64, device=among.device)
    for block in among.blocks(0, among.dimension):
        squares += block.square_().sum(1)
    norms = squares.sqrt_()
    typical = float(np.median(norms.numpy(force=True)))
    excess = (norms / (2 * typical)).clamp_(min=1.0) if typical else torch.ones_like(norms)
    nowhere = norms == 0
    # An update of zeros is divided by 1, not by 0: its pairs are set below.
    found = among.squares(0, among.dimension, torch.where(nowhere, 1.0, norms)) * excess.square_()
    return torch.where(nowhere[None, :] | nowhere[among.members][:, None], NOWHERE, found)


KERNELS: Mapping[DistanceRule, Kernel] = {
    SQUARED: squared,
    L2: l2,
    PER_TENSOR: per_tensor,
    DIRECTION: direction,
}


def device_distances(device: str = "cpu") -> Distances:
    """Return what computes all distances of a round on a device.

    The result has the same bytes at any number of threads. A rule without a kernel here is
    computed by the protocol's own plain code.

    Args:
        device: "cpu", "cuda" or "auto".

    Returns:
        The twin of `plain_distances`, equal to it within each rule's own tolerance; it refuses
        updates that differ in length with ValueError.
    """
    where = device_named(device)

    def distances(
        rule: DistanceRule,
        layout: Layout,
        updates: Mapping[ClientId, NDArray[np.float32]],
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        clients = sorted(updates)
        if rule not in KERNELS or not clients or not members:
            return plain_distances(rule, layout, updates, members)
        if len({updates[client].shape for client in clients}) > 1:
            raise ValueError("the updates differ in length")
        places = {client: place for place, client in enumerate(clients)}
        with reproducible(where), torch.no_grad():
            among = UpdateBlocks(
                [updates[client] for client in clients],
                [places[member] for member in members],
                where,
            )
            return KERNELS[rule](among, layout).numpy(force=True)

    return distances
