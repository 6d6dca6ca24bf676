"""Updates in this machine's memory and on a card, and the distances that members publish.

Shared memory is an unlinked file whose descriptor is passed to a worker at its start.
`multiprocessing`'s shared memory has names that outlive a killed owner.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import DupFd
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from clients.devices import card_failure, device_named, reproducible
from clients.training.port import TrainedUpdate, TrainingError, TrainingJob
from ledger.distances import Matrix, distances_by, fast_distances, usable_cores
from ledger.protocol.encoding import sha256, vector_view
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates
from ledger.protocol.types import ClientId, Digest

_ALIGNMENT = 64  # suits vector instructions and cache lines
_ITEM_BYTES = 4


class SharedBytes:
    """A growing piece of memory that can be passed only to a process that is being started."""

    def __init__(self, size: int) -> None:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("cmfl")
        else:
            with tempfile.TemporaryFile() as file:
                self._descriptor = os.dup(file.fileno())
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
    """Return shared memory with copies of arrays, and their locations."""
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


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """The payload of a row, and the losses of the training that wrote it, if they are recorded."""

    digest: Digest
    size: int
    is_usable: bool  # whether the row holds the payload's numbers, all finite
    losses: bytes | None = None


class UpdateMatrix:
    """Updates of shape (rows, d) and their payloads, in the same memory round after round."""

    def __init__(self, rows: int, dimension: int, form: PayloadForm = FLOAT32) -> None:
        self._dimension, self._form = dimension, form
        self._memory = SharedBytes(rows * dimension * _ITEM_BYTES)
        self._encoded = None if form == FLOAT32 else SharedBytes(rows * form.size(dimension))

    def rows(self, count: int) -> NDArray[np.float32]:
        self._memory.require(count * self._dimension * _ITEM_BYTES)
        if self._encoded is not None:
            self._encoded.require(count * self._form.size(self._dimension))
        return self._memory.array(ArrayLocation(0, "<f4", (count, self._dimension)))

    def encode(self, count: int, index: int) -> EncodedRow:
        """Write the payload of one of `count` rows, and round the row to it if it is usable."""
        row = self.rows(count)[index]
        if self._encoded is None:
            return EncodedRow(sha256(vector_view(row)), row.nbytes, bool(np.isfinite(row).all()))
        payload = self._form.payload(row)
        data = np.frombuffer(payload.data, np.uint8)
        self._payloads(count, self._encoded)[index, : payload.size] = data
        if payload.update is not None:
            row[...] = payload.update
        return EncodedRow(payload.digest, payload.size, payload.update is not None)

    def updates(
        self, jobs: Sequence[TrainingJob], encoded: Sequence[EncodedRow]
    ) -> list[TrainedUpdate]:
        rows, updates = self.rows(len(jobs)), []
        for index, (job, has) in enumerate(zip(jobs, encoded, strict=True)):
            row, numbers = rows[index], None
            row.flags.writeable = False
            data = vector_view(row)
            if self._encoded is not None:
                data = self._payloads(len(jobs), self._encoded)[index, : has.size].data.toreadonly()
                numbers = row
            payload = Payload(data, has.digest, row if has.is_usable else None)
            updates.append(TrainedUpdate(job.client, payload, has.losses, numbers))
        return updates

    def close(self) -> None:
        """Release the memory; rows stay valid while they are referenced."""
        self._memory.close()
        if self._encoded is not None:
            self._encoded.close()

    def _payloads(self, count: int, memory: SharedBytes) -> NDArray[np.uint8]:
        return memory.array(ArrayLocation(0, "u1", (count, self._form.size(self._dimension))))


THREADED_BYTES = 1 << 18  # least size of an update that is worth the hand-over to a hashing thread


class RowPayloads:
    """Payloads of some rows of a matrix, each begun when its row is complete. A context manager."""

    def __init__(
        self, matrix: UpdateMatrix, count: int, places: Sequence[int], device: str
    ) -> None:
        self._matrix, self._count, self._places = matrix, count, places
        self._begun: dict[int, Future[EncodedRow]] = {}
        self._pool: ThreadPoolExecutor | None = None
        if count > 0 and matrix.rows(count)[0].nbytes >= THREADED_BYTES:
            # One core trains an update in ten times the time of its hash; a card trains several in
            # the time of one hash. Two cores launch its work and copy the rows.
            threads = 1 if device == "cpu" else max(1, usable_cores() - 2)
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="hashing")

    def begin(self, index: int) -> None:
        """Begin with a complete row of the call, if it is worth a thread."""
        if self._pool is not None:
            place = self._places[index]
            self._begun[place] = self._pool.submit(self._matrix.encode, self._count, place)

    def result(self) -> list[EncodedRow]:
        """Return the payload of every row, in order; the others are encoded here."""
        begun, matrix = self._begun, self._matrix
        return [
            begun[place].result() if place in begun else matrix.encode(self._count, place)
            for place in self._places
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


_LINE = 128  # numbers in 512 bytes, torch's alignment on CUDA: the order of a sum may depend on it


class ResidentUpdates:
    """Updates on a device by their unchanged rows in memory: at most half of a card's memory."""

    def __init__(self, device: torch.device, dimension: int, most_bytes: int | None = None) -> None:
        self._device, self._dimension, self._most_bytes = device, dimension, most_bytes
        self._stride = -(-dimension // _LINE) * _LINE
        self._matrix: torch.Tensor | None = None
        self._places: dict[int, int] = {}

    def reserve(self, count: int) -> torch.Tensor | None:
        """Forget all updates; return room for others, shape (count, d), None if there is none."""
        self._places = {}
        if self._most_bytes is None:
            self._most_bytes = torch.cuda.get_device_properties(self._device).total_memory // 2
        if 4 * count * self._stride > self._most_bytes:
            self._matrix = None
        elif self._matrix is None or len(self._matrix) < count:
            self._matrix = None  # its memory is free for the new one
            try:
                self._matrix = torch.empty(count, self._stride, device=self._device)
            except torch.OutOfMemoryError:
                return None
        return None if self._matrix is None else self._matrix[:count, : self._dimension]

    def add(self, place: int, row: NDArray[np.float32]) -> None:
        self._places[_address(row)] = place

    def place_of(self, update: NDArray[np.float32]) -> int | None:
        return self._places.get(_address(update)) if len(update) == self._dimension else None

    def columns(self, places: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        assert self._matrix is not None, "a place was returned"
        return self._matrix[:, start:stop].index_select(0, places)


def _address(row: NDArray[np.float32]) -> int:
    address: int = row.__array_interface__["data"][0]
    return address


Rows = Sequence[NDArray[np.float32]]
Written = Callable[[int], None]  # called with the index of each row that is complete, in any thread
_BUFFERS = 4  # updates on their way: on an H100's host one thread copied a fifth of what came down


def update_writer(
    device: torch.device, dimension: int, resident: ResidentUpdates | None = None
) -> InPlaceWriter | DownloadWriter:
    """Return the writer of a device, which keeps the updates there as well if they have room."""
    return InPlaceWriter() if device.type == "cpu" else DownloadWriter(device, dimension, resident)


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
        pass


class DownloadWriter:
    """Copies updates from a device on a separate stream, by pinned buffers, each with a thread."""

    _rows: Rows
    _written: Written | None
    _kept: torch.Tensor | None

    def __init__(
        self, device: torch.device, dimension: int, resident: ResidentUpdates | None
    ) -> None:
        self._resident = resident
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_cuda else None
        self._formed = [torch.empty(dimension, device=device) for _ in range(_BUFFERS)]
        self._buffers = [torch.empty(dimension, pin_memory=is_cuda) for _ in range(_BUFFERS)]
        self._copies: list[Future[None] | None] = [None] * _BUFFERS
        self._next = 0
        self._pool = ThreadPoolExecutor(_BUFFERS, thread_name_prefix="copying")

    def begin(self, rows: Rows, written: Written | None) -> None:
        wait(filter(None, self._copies))  # of a call that has failed
        self._copies = [None] * _BUFFERS
        self._rows, self._written = rows, written
        self._kept = None if self._resident is None else self._resident.reserve(len(rows))

    def write(self, place: int, form: Callable[[torch.Tensor], None]) -> None:
        buffer, self._next = self._next, (self._next + 1) % _BUFFERS
        copy = self._copies[buffer]
        if copy is not None:
            copy.result()
        formed = self._formed[buffer] if self._kept is None else self._kept[place]
        form(formed)
        event: torch.cuda.Event | None = None  # before it neither tensor is used
        if self._stream is None:
            self._buffers[buffer].copy_(formed)
        else:
            self._stream.wait_stream(torch.cuda.current_stream(formed.device))  # it is being formed
            with torch.cuda.stream(self._stream):
                self._buffers[buffer].copy_(formed, non_blocking=True)
            event = self._stream.record_event()
        self._copies[buffer] = self._pool.submit(self._complete, place, buffer, event)

    def finish(self) -> None:
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


BLOCK = 1 << 16  # numbers of an update that are brought together at once
SLICE = 1 << 13  # numbers of an update in one sum: those of 355 updates fit into an H100's cache
_DIRECT = "donot_use_mm_for_euclid_dist"  # torch's name for differences instead of the Gram form


def engine_distances(
    device: str, threads: int = 1, resident: ResidentUpdates | None = None
) -> Distances:
    """Return the counterpart of `plain_distances` on a device, equal within rule tolerances."""
    torch_device = device_named(device)
    if torch_device.type == "cpu":
        return fast_distances(threads)
    return torch_distances(torch_device, resident)


def torch_distances(device: torch.device, resident: ResidentUpdates | None = None) -> Distances:
    """Return a function that computes all distances of a round by torch."""
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
    """Squared distances of one round's updates on a device: some are there, others are sent.

    They are direct differences in float64. The Gram form a·a + b·b − 2a·b loses all digits of
    similar updates, and after centring it loses them to one attacker with a huge update.
    """

    def __init__(
        self,
        device: torch.device,
        resident: ResidentUpdates | None,
        updates: Sequence[NDArray[np.float32]],
        members: Sequence[int],
    ) -> None:
        self._device, self._members, self._resident = device, members, resident
        self._clients, self._dimension = len(updates), len(updates[0])
        places = [None if resident is None else resident.place_of(update) for update in updates]
        there = [place for place in places if place is not None]
        here = [row for row, place in enumerate(places) if place is not None]
        sent = [row for row, place in enumerate(places) if place is None]
        self._sent = [updates[row] for row in sent]
        self._places = torch.tensor(there, device=device, dtype=torch.int64)
        # Rows of the updates that are there, and then of the others, into the updates' order.
        self._order = torch.tensor(np.argsort([*here, *sent]), device=device)

    def squares(self, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances, shape (members, clients); see `PairSquares.squares`."""
        divisors = None if norms is None else torch.tensor(norms, device=self._device)
        shape = len(self._members), self._clients
        with reproducible(self._device), torch.no_grad():
            members = torch.tensor(self._members, device=self._device)
            total = torch.zeros(shape, dtype=torch.float64, device=self._device)
            for part in self._slices():
                deltas = part if divisors is None else part.div_(divisors[:, None])
                total += torch.cdist(deltas[members], deltas, compute_mode=_DIRECT).square_()
            return total.numpy(force=True)

    def norms(self) -> NDArray[np.float64]:
        with reproducible(self._device), torch.no_grad():
            total = torch.zeros(self._clients, dtype=torch.float64, device=self._device)
            for deltas in self._slices():
                total += deltas.square_().sum(1)
            return total.sqrt_().numpy(force=True)

    def _slices(self) -> Iterator[torch.Tensor]:
        """Yield new slices of all updates in float64, shape (clients, numbers)."""
        for first in range(0, self._dimension, BLOCK):
            block = self._columns(first, min(first + BLOCK, self._dimension))
            for part in block.split(SLICE, dim=1):
                yield part.double()

    def _columns(self, start: int, stop: int) -> torch.Tensor:
        """Return the numbers [start, stop) of all updates in order, shape (clients, numbers)."""
        parts = []
        if self._resident is not None and len(self._places):
            parts.append(self._resident.columns(self._places, start, stop))
        if self._sent:
            block = np.stack([update[start:stop] for update in self._sent])
            parts.append(torch.from_numpy(block).to(self._device))
        return parts[0] if len(parts) == 1 else torch.cat(parts).index_select(0, self._order)
