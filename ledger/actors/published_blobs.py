"""Blobs of the present round that this process has published itself, in memory.

Bytes that this process hashed need no second look, so its own actors find them here and not in the
store. All that others put there is read from the store, and verified: nothing comes in here but
what an actor of this process asked to have stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from ledger.protocol.payload import Payload


class PublishedBlobs:
    """The blobs of one round, by client and by digest, without a copy of their bytes.

    Their memory may be overwritten when clients train again: forget the round before that.
    """

    def __init__(self) -> None:
        self.payloads: dict[ClientId, Payload] = {}
        self._known: dict[Digest, Payload] = {}

    def take(self, blobs: Iterable[Payload]) -> None:
        """Remember what is stored."""
        for blob in blobs:
            self._known.setdefault(blob.digest, blob)

    def find(self, digest: Digest) -> Payload | None:
        """Return what was published under a digest, None if that was not here."""
        return self._known.get(digest)

    def forget(self) -> None:
        """Forget the round."""
        self.payloads.clear()
        self._known.clear()
