"""Payloads of a call's updates, hashed in threads while others are trained.

`hashlib` lets other threads run while it hashes a large buffer, so the digests of a round cost next
to no time on a machine with a second core.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from clients.training.workers.shared_memory import payload_of
from ledger.distances.fast import usable_cores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.payload import Payload

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
    """Payloads of rows, each begun when its row is complete. A context manager.

    Args:
        rows: the updates of a call.
        threads: number of threads that hash.
    """

    def __init__(self, rows: Sequence[NDArray[np.float32]], threads: int) -> None:
        self._rows = rows
        self._begun: dict[int, Future[Payload]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="hashing")

    def begin(self, place: int) -> None:
        """Begin to hash a complete row, if it is worth a thread."""
        row = self._rows[place]
        if row.nbytes >= THREADED_BYTES:
            self._begun[place] = self._pool.submit(payload_of, row)

    def result(self) -> list[Payload]:
        """Return the payload of every row, in order; those not begun are hashed here."""
        return [
            self._begun[place].result() if place in self._begun else payload_of(row)
            for place, row in enumerate(self._rows)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
