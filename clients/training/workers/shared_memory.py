"""Memory shared by a process and its workers, which the kernel frees when the last of them ends.

It is an unlinked file whose descriptor is passed to a worker at its start. `multiprocessing`'s own
shared memory has names that outlive a killed owner.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.training.port import TrainedUpdate
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.types import Digest

# Suits vector instructions and cache lines.
_ALIGNMENT = 64
_DTYPE = "<f4"
_ITEM_BYTES = 4


class SharedBytes:
    """A growing piece of memory that a process may map any number of times.

    It can be passed only to a process that is being started.

    Args:
        size: initial bytes; memory is used only when it is written.
    """

    def __init__(self, size: int) -> None:
        self._descriptor = _nameless_file()
        self._size = 0
        self._mapped: mmap.mmap | None = None
        self.require(size)

    def require(self, size: int) -> None:
        """Grow to at least `size` bytes; earlier mappings stay valid."""
        size = max(size, mmap.PAGESIZE)
        if size > self._size:
            # Another process may have grown it already.
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._size, self._mapped = size, None

    def array(self, location: ArrayLocation) -> NDArray[Any]:
        """Return a shared array: all processes see what one of them writes."""
        if self._descriptor < 0:
            raise ValueError("the memory is closed")
        if self._mapped is None:
            self._mapped = mmap.mmap(self._descriptor, self._size)
        count = math.prod(location.shape)
        flat = np.frombuffer(self._mapped, location.dtype, count, location.offset)
        return flat.reshape(location.shape)

    def close(self) -> None:
        """Close the descriptor; arrays stay valid while they are referenced."""
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
    """Location of an array in shared memory.

    Attributes:
        shape: its shape.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]


def share(arrays: Iterable[NDArray[Any]]) -> tuple[SharedBytes, list[ArrayLocation]]:
    """Return shared memory with copies of arrays, and their locations.

    Args:
        arrays: of numbers, or of strings of a fixed width.
    """
    sources, locations, end = list(arrays), [], 0
    for array in sources:
        if array.dtype.hasobject:
            raise ValueError(f"an array of {array.dtype} cannot be shared with a worker")
        locations.append(ArrayLocation(end, array.dtype.str, array.shape))
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    memory = SharedBytes(end)
    for array, location in zip(sources, locations, strict=True):
        memory.array(location)[...] = array
    return memory, locations


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cmfl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """The payload of a row.

    Attributes:
        digest: sha256 of its bytes.
    """

    digest: Digest
    size: int


class UpdateMatrix:
    """Updates of shape (rows, d) and their payloads, in the same memory round after round."""

    def __init__(self, rows: int, dimension: int, form: PayloadForm = FLOAT32) -> None:
        self._dimension = dimension
        self._form = form
        self._memory = SharedBytes(rows * dimension * _ITEM_BYTES)
        self._encoded = None if form == FLOAT32 else SharedBytes(rows * form.size(dimension))

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the first `count` rows for writing; the matrix grows if needed."""
        self._memory.require(count * self._dimension * _ITEM_BYTES)
        if self._encoded is not None:
            self._encoded.require(count * self._form.size(self._dimension))
        return self._memory.array(ArrayLocation(0, _DTYPE, (count, self._dimension)))

    def encode(self, count: int, index: int) -> EncodedRow:
        """Write a row's payload, of `count` rows; the row becomes what its payload says.

        A row with a number that the form cannot hold stays as it is, with a malformed payload.
        """
        row = self.rows(count)[index]
        if self._encoded is None:
            return EncodedRow(payload_of(row).digest, row.nbytes)
        payload = self._form.payload(row)
        self._payloads(count, self._encoded)[index, : payload.size] = np.frombuffer(
            payload.data, np.uint8
        )
        if payload.update is not None:
            row[...] = payload.update
        return EncodedRow(payload.digest, payload.size)

    def update(
        self, count: int, index: int, encoded: EncodedRow, client: int, losses: bytes | None
    ) -> TrainedUpdate:
        """Return an encoded row of `count` as the update of a client, without copying."""
        row = self.rows(count)[index]
        row.flags.writeable = False
        if self._encoded is None:
            return TrainedUpdate(client, payload_of(row, encoded.digest), losses)
        data = self._payloads(count, self._encoded)[index, : encoded.size].data.toreadonly()
        is_usable = encoded.size == self._form.size(self._dimension)
        payload = Payload(data, encoded.digest, row if is_usable else None)
        return TrainedUpdate(client, payload, losses, row)

    def close(self) -> None:
        """Release the memory; rows stay valid while they are referenced."""
        self._memory.close()
        if self._encoded is not None:
            self._encoded.close()

    def _payloads(self, count: int, memory: SharedBytes) -> NDArray[np.uint8]:
        return memory.array(ArrayLocation(0, "u1", (count, self._form.size(self._dimension))))


def payload_of(row: NDArray[np.float32], digest: Digest | None = None) -> Payload:
    """Return a row as a read-only payload of form float32, without copying.

    Args:
        digest: of its bytes, from the process that wrote them; None to hash them here.
    """
    data = row.data.toreadonly().cast("B")
    return Payload.of(data) if digest is None else Payload(data, digest)
