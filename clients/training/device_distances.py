"""The distances that members publish: compiled on the processor, or by torch on a GPU.

On a GPU, too, they are direct differences in float64. The Gram form a·a + b·b − 2a·b loses all
digits of similar updates, and after centring it loses them to one attacker with a huge update. No
matrix product is involved, so TF32 has no effect.

Updates that are still on the device that trained them stay there; all others are sent once. Slices
of all of them fit into a card's cache together, so that an update's numbers come from its memory
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from clients.devices import card_failure, device_named, reproducible
from clients.training.port import TrainingError
from ledger.distances import Matrix, distances_by, fast_distances
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates
from ledger.protocol.types import ClientId

_LINE = 128
"""Numbers in 512 bytes, torch's alignment on CUDA: a kernel may sum in another order at another
alignment, and the bytes of an update would depend on its row."""

_SHARE = 2
"""Part of a card's memory that they may take: one in so many."""


class ResidentUpdates:
    """Updates on a device, found by the rows of this machine's memory that hold the same numbers.

    A row must not be written by anybody else until the next training: it would not be what is on
    the device. Engines hand out read-only views.

    Args:
        most_bytes: that they may take; None for half of the card's memory.
    """

    def __init__(self, device: torch.device, dimension: int, most_bytes: int | None = None) -> None:
        self._device = device
        self._dimension = dimension
        self._most_bytes = most_bytes
        self._stride = -(-dimension // _LINE) * _LINE
        self._matrix: torch.Tensor | None = None
        self._places: dict[int, int] = {}

    def reserve(self, count: int) -> torch.Tensor | None:
        """Forget all updates; return room for others, shape (count, d), or None.

        Returns:
            None if they would take too much of the card's memory, or more than is free.
        """
        self._places = {}
        if 4 * count * self._stride > self._limit():
            self._matrix = None
        elif self._matrix is None or len(self._matrix) < count:
            self._matrix = None  # its memory is free for the new one
            try:
                self._matrix = torch.empty(count, self._stride, device=self._device)
            except torch.OutOfMemoryError:
                return None
        return None if self._matrix is None else self._matrix[:count, : self._dimension]

    def add(self, place: int, row: NDArray[np.float32]) -> None:
        """Note that a row has the numbers of the update at a place."""
        self._places[_address(row)] = place

    def place_of(self, update: NDArray[np.float32]) -> int | None:
        """Return the place of an update on the device; None if it is not there."""
        return self._places.get(_address(update)) if len(update) == self._dimension else None

    def columns(self, places: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Return the numbers [start, stop) of the updates at some places, one row each."""
        assert self._matrix is not None, "a place was returned"
        return self._matrix[:, start:stop].index_select(0, places)

    def _limit(self) -> int:
        if self._most_bytes is None:
            memory: int = torch.cuda.get_device_properties(self._device).total_memory
            self._most_bytes = memory // _SHARE
        return self._most_bytes


def _address(row: NDArray[np.float32]) -> int:
    address: int = row.__array_interface__["data"][0]
    return address


BLOCK = 1 << 16
"""Numbers of an update that are brought together at once."""

SLICE = 1 << 13
"""Numbers of an update in one sum; all sums of a pair are added in order. Those of 355 updates are
22 MiB in float64, less than an H100's cache."""

_DIRECT = "donot_use_mm_for_euclid_dist"
"""torch's name for differences instead of the Gram form."""


def engine_distances(
    device: str, threads: int = 1, resident: ResidentUpdates | None = None
) -> Distances:
    """Return the counterpart of `plain_distances` on a device, equal within each rule's tolerance.

    Args:
        threads: number of cores; ignored on a GPU.
        resident: updates that are on the GPU already; None for none.
    """
    torch_device = device_named(device)
    if torch_device.type == "cpu":
        return fast_distances(threads)
    return torch_distances(torch_device, resident)


def torch_distances(device: torch.device, resident: ResidentUpdates | None = None) -> Distances:
    """Return a function that computes all distances of a round by torch.

    The processor as device is for tests: compiled distances are faster there.
    """
    distances = distances_by(partial(TorchSquares, device, resident))

    def compute(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        try:
            return distances(rule, travel, updates, members)
        except RuntimeError as error:
            failure = card_failure(error)
            if failure is None:
                raise
            raise TrainingError(failure) from error

    return compute


class TorchSquares:
    """Squared distances of one round's updates, on a device."""

    def __init__(
        self,
        device: torch.device,
        resident: ResidentUpdates | None,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        """Store the updates Δ of every client, each of shape (d,), without copying."""
        self._dimension = len(updates[0])
        self._members = members
        self._device = device
        self._updates = updates
        self._blocks = UpdateBlocks(device, resident, updates)

    def squares(self, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances, shape (members, clients); see `PairSquares.squares`."""
        divisors = None if norms is None else torch.tensor(norms, device=self._device)
        shape = len(self._members), len(self._updates)
        with reproducible(self._device), torch.no_grad():
            members = torch.tensor(self._members, device=self._device)
            total = torch.zeros(shape, dtype=torch.float64, device=self._device)
            for part in self._slices(0, self._dimension):
                deltas = part if divisors is None else part.div_(divisors[:, None])
                total += torch.cdist(deltas[members], deltas, compute_mode=_DIRECT).square_()
            return total.numpy(force=True)

    def norms(self) -> NDArray[np.float64]:
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(len(self._updates), dtype=torch.float64, device=self._device)
            for deltas in self._slices(0, self._dimension):
                total += deltas.square_().sum(1)
            return total.sqrt_().numpy(force=True)

    def _slices(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield [start, stop) of all updates in float64, shape (clients, numbers), anew each."""
        for first in range(start, stop, BLOCK):
            block = self._blocks.columns(first, min(first + BLOCK, stop))
            for part in block.split(SLICE, dim=1):
                yield part.double()


class UpdateBlocks:
    """Columns of updates on a device: of some that are there, and of others that are sent."""

    def __init__(
        self,
        device: torch.device,
        resident: ResidentUpdates | None,
        updates: Sequence[NDArray[np.float32]],
    ) -> None:
        self._device = device
        self._resident = resident
        places = [None if resident is None else resident.place_of(update) for update in updates]
        here = [row for row, place in enumerate(places) if place is not None]
        sent = [row for row, place in enumerate(places) if place is None]
        self._sent = [updates[row] for row in sent]
        self._places = torch.tensor(
            [place for place in places if place is not None], device=device, dtype=torch.int64
        )
        # Rows of those that are there, and then of the others, into the updates' order.
        self._order = torch.tensor(np.argsort([*here, *sent]), device=device)

    def columns(self, start: int, stop: int) -> torch.Tensor:
        """Return the numbers [start, stop) of all updates in order, shape (clients, numbers)."""
        parts = []
        if self._resident is not None and len(self._places):
            parts.append(self._resident.columns(self._places, start, stop))
        if self._sent:
            block = np.stack([update[start:stop] for update in self._sent])
            parts.append(torch.from_numpy(block).to(self._device))
        return parts[0] if len(parts) == 1 else torch.cat(parts).index_select(0, self._order)
