"""Payloads of a call's updates, encoded and hashed in threads while others are trained.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from ledger.distances.fast import usable_cores

if TYPE_CHECKING:
    from clients.training.workers.shared_memory import EncodedRow, UpdateMatrix

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
