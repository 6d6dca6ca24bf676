"""Payloads of a call's updates, hashed in threads while others are trained.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ledger.distances.fast import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType

Encoded = TypeVar("Encoded")

THREADED_BYTES = 1 << 18
"""Least size of an update that is hashed in a thread: it takes longer than the hand-over."""

_MOST_THREADS = 8


def hashing_threads(device: str, update_bytes: int) -> int:
    """Return the number of threads that keep up with a device's training; 0 for small updates.

    One core trains an update in ten times the time of its hash; a card trains several in the time
    of one hash.
    """
    if update_bytes < THREADED_BYTES:
        return 0
    return 1 if device == "cpu" else min(_MOST_THREADS, usable_cores())


class RowPayloads(Generic[Encoded]):
    """Payloads of rows, each begun when its row is complete. A context manager.

    Args:
        count: number of rows.
        encode: returns the payload of a complete row, given its index.
        threads: number of threads that encode; 0 to encode all at the end, in the caller's.
    """

    def __init__(self, count: int, encode: Callable[[int], Encoded], threads: int) -> None:
        self._count = count
        self._encode = encode
        self._begun: dict[int, Future[Encoded]] = {}
        self._pool = ThreadPoolExecutor(threads, "hashing") if threads else None

    def begin(self, place: int) -> None:
        """Begin to encode a complete row, if there is a thread for it."""
        if self._pool is not None:
            self._begun[place] = self._pool.submit(self._encode, place)

    def result(self) -> list[Encoded]:
        """Return the payload of every row, in order; those not begun are encoded here."""
        return [
            self._begun[place].result() if place in self._begun else self._encode(place)
            for place in range(self._count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
