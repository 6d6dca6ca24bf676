"""Bytes with their digest: hashed once, by the process that made or received them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class Payload:
    """What a client publishes of a round, usually its update as float32 numbers.

    A model or a record, too, is passed on like this. The digest is believed, and two with one
    digest are equal; so whoever makes one of bytes from elsewhere goes through `of`.

    Attributes:
        data: the bytes; a view where they lie in memory that somebody else owns.
        digest: their sha256.
    """

    data: bytes | memoryview = field(compare=False, repr=False)
    digest: Digest

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return memoryview(self.data).nbytes

    @classmethod
    def of(cls, data: bytes | memoryview) -> Self:
        """Return bytes with the digest that they turn out to have."""
        return cls(data, sha256(data))
