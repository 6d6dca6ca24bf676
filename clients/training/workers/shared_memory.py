"""Memory that a process and its workers map, and that no death of any of them leaves behind.

It has no name: it is an open file that lives nowhere, whose descriptor is handed to a worker when
it is started. The kernel frees it when the last of them is gone, however they went. That is why it
is not `multiprocessing.shared_memory`, whose names outlive a killed owner.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# What vector instructions and cache lines like; rows of a matrix lie on whole pages of their own.
_ALIGNMENT = 64


class SharedBytes:
    """A piece of memory that grows, and that a process may map as often as it likes.

    It can be handed to a process that is just being started, and to no other.

    Args:
        size: bytes at first; none of them takes up memory before it is written.
    """

    def __init__(self, size: int) -> None:
        self._descriptor = _nameless_file()
        self._size = 0
        self._mapped: mmap.mmap | None = None
        self.require(size)

    def require(self, size: int) -> None:
        """Let it be at least so large; what was mapped before stays mapped.

        Args:
            size: bytes.
        """
        size = max(size, mmap.PAGESIZE)
        if size > self._size:
            # Of two processes the one that comes second finds it large enough.
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._size, self._mapped = size, None

    def array(self, place: ArrayLocation) -> NDArray[Any]:
        """Return an array that lies in it; what one process writes there all others see.

        Args:
            place: where it lies.

        Raises:
            ValueError: it was closed.
        """
        if self._descriptor < 0:
            raise ValueError("the memory is closed")
        if self._mapped is None:
            self._mapped = mmap.mmap(self._descriptor, self._size)
        count = math.prod(place.shape)
        flat = np.frombuffer(self._mapped, place.dtype, count, place.offset)
        return flat.reshape(place.shape)

    def close(self) -> None:
        """Give up the descriptor; arrays stay as long as anybody holds them."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._mapped = -1, None

    def __getstate__(self) -> tuple[Any, int]:
        return DupFd(self._descriptor), self._size

    def __setstate__(self, state: tuple[Any, int]) -> None:
        handle, self._size = state
        self._descriptor = handle.detach()
        self._mapped = None


@dataclass(frozen=True, slots=True)
class ArrayLocation:
    """Where an array lies in shared memory.

    Attributes:
        offset: of its first byte.
        dtype: type of its elements, as NumPy writes it.
        shape: its shape.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]


def share(arrays: Iterable[NDArray[Any]]) -> tuple[SharedBytes, list[ArrayLocation]]:
    """Return shared memory with copies of arrays, and where each lies.

    Args:
        arrays: of numbers, or of strings of a fixed width.

    Raises:
        ValueError: an array of objects, which live in one process only.
    """
    kept, places, end = list(arrays), [], 0
    for array in kept:
        if array.dtype.hasobject:
            raise ValueError(f"an array of {array.dtype} cannot be shared with a worker")
        places.append(ArrayLocation(end, array.dtype.str, array.shape))
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    memory = SharedBytes(end)
    for array, place in zip(kept, places, strict=True):
        memory.array(place)[...] = array
    return memory, places


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cmfl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
