"""The updates of the newest training on the device that trained them, where distances find them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

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
