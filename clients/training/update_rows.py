"""The rows of updates in this machine's memory: shared, written, encoded and hashed.

Shared memory is an unlinked file whose descriptor is passed to a worker at its start.
`multiprocessing`'s own shared memory has names that outlive a killed owner.

A card computes an update much faster than one thread moves its numbers. So each comes down into one
of a few pinned buffers, and from there a thread copies it to its row while others are trained. The
row itself is never sent to the card: what it holds is of the round before.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from clients.training.device_distances import ResidentUpdates
from clients.training.port import TrainedUpdate, TrainingJob
from ledger.distances import usable_cores
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
    """Location of an array in shared memory."""

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
        losses: of the training that wrote the row; None if nobody asked.
    """

    digest: Digest
    size: int
    losses: bytes | None = None


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

    def updates(
        self, jobs: Sequence[TrainingJob], encoded: Sequence[EncodedRow]
    ) -> list[TrainedUpdate]:
        """Return the first rows as the updates of as many jobs, without copying."""
        return [
            self._update(len(jobs), index, row, job.client)
            for index, (job, row) in enumerate(zip(jobs, encoded, strict=True))
        ]

    def close(self) -> None:
        """Release the memory; rows stay valid while they are referenced."""
        self._memory.close()
        if self._encoded is not None:
            self._encoded.close()

    def _update(self, count: int, index: int, encoded: EncodedRow, client: int) -> TrainedUpdate:
        row = self.rows(count)[index]
        row.flags.writeable = False
        if self._encoded is None:
            return TrainedUpdate(client, payload_of(row, encoded.digest), encoded.losses)
        data = self._payloads(count, self._encoded)[index, : encoded.size].data.toreadonly()
        is_usable = encoded.size == self._form.size(self._dimension)
        payload = Payload(data, encoded.digest, row if is_usable else None)
        return TrainedUpdate(client, payload, encoded.losses, row)

    def _payloads(self, count: int, memory: SharedBytes) -> NDArray[np.uint8]:
        return memory.array(ArrayLocation(0, "u1", (count, self._form.size(self._dimension))))


def payload_of(row: NDArray[np.float32], digest: Digest | None = None) -> Payload:
    """Return a row as a read-only payload of form float32, without copying.

    Args:
        digest: of its bytes, from the process that wrote them; None to hash them here.
    """
    data = row.data.toreadonly().cast("B")
    return Payload.of(data) if digest is None else Payload(data, digest)


THREADED_BYTES = 1 << 18
"""Least size of an update that is hashed in a thread: it takes longer than the hand-over."""

_MOST_THREADS = 8


def hashing_threads(device: str) -> int:
    """Return the number of threads that keep up with a device's training.

    One core trains an update in ten times the time of its hash; a card trains several in the time
    of one hash.
    """
    return 1 if device == "cpu" else min(_MOST_THREADS, usable_cores())


class RowPayloads:
    """Payloads of some rows of a matrix, each begun when its row is complete. A context manager.

    Args:
        places: the rows of this call, in order.
        threads: number of threads that encode and hash.
    """

    def __init__(
        self, matrix: UpdateMatrix, count: int, places: Sequence[int], threads: int
    ) -> None:
        self._matrix = matrix
        self._count = count
        self._places = places
        self._begun: dict[int, Future[EncodedRow]] = {}
        is_threaded = count > 0 and matrix.rows(count)[0].nbytes >= THREADED_BYTES
        self._pool = (
            ThreadPoolExecutor(threads, thread_name_prefix="hashing") if is_threaded else None
        )

    def begin(self, index: int) -> None:
        """Begin with a complete row of the call, if it is worth a thread."""
        if self._pool is not None:
            place = self._places[index]
            self._begun[place] = self._pool.submit(self._matrix.encode, self._count, place)

    def result(self) -> list[EncodedRow]:
        """Return the payload of every row, in order; those not begun are encoded here."""
        return [
            self._begun[place].result()
            if place in self._begun
            else self._matrix.encode(self._count, place)
            for place in self._places
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


Rows = Sequence[NDArray[np.float32]]
"""Destination of each update, each of shape (d,)."""

Written = Callable[[int], None]
"""Called with the index of each row that is complete, in any thread."""

_BUFFERS = 4
"""Updates on their way, each with a thread. On an H100's host one thread copied 10 GB/s, a fifth of
what came down."""


def update_writer(
    device: torch.device, dimension: int, resident: ResidentUpdates | None = None
) -> InPlaceWriter | DownloadWriter:
    """Return the writer of a device.

    Args:
        resident: keeps the updates on the device as well; None to keep none.
    """
    if device.type == "cpu":
        return InPlaceWriter()
    return DownloadWriter(device, dimension, resident)


class InPlaceWriter:
    """Lets updates be formed in their rows."""

    _rows: Rows
    _written: Written | None

    def begin(self, rows: Rows, written: Written | None) -> None:
        self._rows, self._written = rows, written

    def write(self, place: int, form: Callable[[torch.Tensor], None]) -> None:
        form(torch.from_numpy(self._rows[place]))
        if self._written is not None:
            self._written(place)

    def finish(self) -> None:
        """Do nothing: all are there."""


class DownloadWriter:
    """Copies updates from a device through some buffers, in parallel with it.

    The processor as device is for tests.
    """

    _rows: Rows
    _written: Written | None
    _kept: torch.Tensor | None

    def __init__(
        self, device: torch.device, dimension: int, resident: ResidentUpdates | None
    ) -> None:
        self._resident = resident
        self._is_cuda = device.type == "cuda"
        self._formed = [torch.empty(dimension, device=device) for _ in range(_BUFFERS)]
        self._buffers = [torch.empty(dimension, pin_memory=self._is_cuda) for _ in range(_BUFFERS)]
        self._copies: list[Future[None] | None] = [None] * _BUFFERS
        self._next = 0
        self._pool = ThreadPoolExecutor(_BUFFERS, thread_name_prefix="copying")

    def begin(self, rows: Rows, written: Written | None) -> None:
        """Begin a call; what is left of one that has failed is over before."""
        wait(filter(None, self._copies))
        self._copies = [None] * _BUFFERS
        self._rows, self._written = rows, written
        self._kept = None if self._resident is None else self._resident.reserve(len(rows))

    def write(self, place: int, form: Callable[[torch.Tensor], None]) -> None:
        """Form an update on the device and start to copy it."""
        buffer, self._next = self._next, (self._next + 1) % _BUFFERS
        copy = self._copies[buffer]
        if copy is not None:
            copy.result()
        formed = self._formed[buffer] if self._kept is None else self._kept[place]
        form(formed)
        self._buffers[buffer].copy_(formed, non_blocking=True)
        event = torch.cuda.Event() if self._is_cuda else None
        if event is not None:
            event.record()
        self._copies[buffer] = self._pool.submit(self._complete, place, buffer, event)

    def finish(self) -> None:
        """Wait until every update is in its row."""
        for copy in self._copies:
            if copy is not None:
                copy.result()

    def _complete(self, place: int, buffer: int, event: torch.cuda.Event | None) -> None:
        if event is not None:
            event.synchronize()
        row = self._rows[place]
        row[:] = self._buffers[buffer].numpy()
        if self._kept is not None and self._resident is not None:
            self._resident.add(place, row)
        if self._written is not None:
            self._written(place)
