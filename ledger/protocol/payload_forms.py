"""Forms in which updates are published: the update is what the payload says, in any form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import sha256, vector_from_bytes, vector_view
from ledger.protocol.errors import EncodingError
from ledger.protocol.payload import Payload
from ledger.protocol.payload_q8 import decode_q8, encode_q8, q8_size


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """A form of payloads.

    Attributes:
        size: from d to the bytes of a payload.
        encode: from an update of shape (d,) to its payload, which is malformed if the update has a
            number that the form cannot hold.
        decode: from a payload and d to the update, read-only; EncodingError if it is malformed.
    """

    name: str
    size: Callable[[int], int]
    encode: Callable[[NDArray[np.float32]], bytes | memoryview]
    decode: Callable[[bytes | memoryview, int], NDArray[np.float32]]
    sentence: str

    def update_of(self, payload: bytes | memoryview, dimension: int) -> NDArray[np.float32] | None:
        """Return the update behind a payload, shape (d,); None if it is malformed."""
        try:
            return self.decode(payload, dimension)
        except EncodingError:
            return None

    def payload(self, update: NDArray[np.float32]) -> Payload:
        """Return the payload of an update of shape (d,), with the update that it says."""
        data = self.encode(update)
        return Payload(data, sha256(data), self.update_of(data, len(update)))


def _float32_size(dimension: int) -> int:
    return 4 * dimension


FLOAT32 = PayloadForm(
    "float32", _float32_size, vector_view, vector_from_bytes, "four bytes a number, as trained"
)
Q8 = PayloadForm(
    "q8", q8_size, encode_q8, decode_q8, "one byte a number, and one for each 64 a power of two"
)

PAYLOAD_FORMS = {form.name: form for form in (FLOAT32, Q8)}
