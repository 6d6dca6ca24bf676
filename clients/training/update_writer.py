"""The way of an update into its row in this machine's memory: in place, or down from a device.

A card computes an update much faster than one thread moves its numbers. So each comes down into one
of a few pinned buffers, and from there a thread copies it to its row while others are trained. The
row itself is never sent to the card: what it holds is of the round before.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray

from clients.training.device_distances import ResidentUpdates
from ledger.distances.fast import usable_cores

if TYPE_CHECKING:
    from clients.training.pool_process import EncodedRow, UpdateMatrix


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
        """Begin a call."""
        self._rows, self._written = rows, written

    def write(self, place: int, form: Callable[[torch.Tensor], None]) -> None:
        """Form an update in its row."""
        form(torch.from_numpy(self._rows[place]))
        if self._written is not None:
            self._written(place)

    def finish(self) -> None:
        """Do nothing: all are there."""


class DownloadWriter:
    """Copies updates from a device through some buffers, in parallel with it.

    The processor as device is for tests.

    Args:
        resident: keeps the updates on the device as well; None to keep none.
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
        """Copy an update from its buffer to its row."""
        if event is not None:
            event.synchronize()
        row = self._rows[place]
        row[:] = self._buffers[buffer].numpy()
        if self._kept is not None and self._resident is not None:
            self._resident.add(place, row)
        if self._written is not None:
            self._written(place)
