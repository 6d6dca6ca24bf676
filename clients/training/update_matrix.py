"""The shared matrix of a round's updates, written row by row and read in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.training.workers.shared_memory import ArrayLocation, SharedBytes
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.types import Digest

_DTYPE = "<f4"
_ITEM_BYTES = 4


class UpdateMatrix:
    """Updates of shape (rows, d), in the same memory round after round.

    Args:
        rows: initial number.
        dimension: d.
    """

    def __init__(self, rows: int, dimension: int) -> None:
        self._dimension = dimension
        self._memory = SharedBytes(rows * dimension * _ITEM_BYTES)

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the first `count` rows for writing; the matrix grows if needed."""
        self._memory.require(count * self._dimension * _ITEM_BYTES)
        return self._memory.array(ArrayLocation(0, _DTYPE, (count, self._dimension)))

    def close(self) -> None:
        """Release the memory; rows stay valid while they are referenced."""
        self._memory.close()


def payload_of(row: NDArray[np.float32], digest: Digest | None = None) -> Payload:
    """Return a row as a read-only payload, without copying.

    Args:
        row: the update.
        digest: of its bytes, from the process that wrote them; None to hash them here.
    """
    data = row.data.toreadonly().cast("B")
    return Payload.of(data) if digest is None else Payload(data, digest)
