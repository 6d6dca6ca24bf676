"""Usable updates: payloads of 4 d bytes of little-endian float32, all finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def update_of(payload: bytes | memoryview, dimension: int) -> NDArray[np.float32] | None:
    """Return the update behind a payload, shape (d,); None if it is malformed."""
    try:
        return vector_from_bytes(payload, dimension)
    except EncodingError:
        return None
