"""Bytes with their digest: hashed once, by the process that made or received them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class Payload:
    """Published bytes of a client, usually its update as float32 numbers.

    Models and records are passed on like this, too. The digest is trusted, and two payloads with
    one digest are equal; so bytes from elsewhere go through `of`.

    Attributes:
        data: the bytes; a view into memory that is owned elsewhere.
        digest: their sha256.
    """

    data: bytes | memoryview = field(compare=False, repr=False)
    digest: Digest

    @property
    def size(self) -> int:
        """Number of bytes."""
        return memoryview(self.data).nbytes

    @classmethod
    def of(cls, data: bytes | memoryview) -> Self:
        """Return bytes with their digest."""
        return cls(data, sha256(data))
