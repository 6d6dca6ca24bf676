"""Bytes with their digest: hashed once, by the process that made or received them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class Payload:
    """Published bytes of a client, usually its update in the run's form.

    Models and records are passed on like this, too. Digest and update are trusted, and two payloads
    with one digest are equal; so bytes from elsewhere go through `of`.

    Attributes:
        data: the bytes; a view into memory that is owned elsewhere.
        digest: their sha256.
        update: what they say, shape (d,), where this process has decoded them already.
    """

    data: bytes | memoryview = field(compare=False, repr=False)
    digest: Digest
    update: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return memoryview(self.data).nbytes

    @classmethod
    def of(cls, data: bytes | memoryview) -> Self:
        """Return bytes with their digest."""
        return cls(data, sha256(data))
