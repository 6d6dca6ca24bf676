"""A blob store that lies, or has lost some of its blobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.protocol.errors import BlobMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.blobs.store import BlobReader
    from ledger.protocol.types import Digest


@dataclass
class ChangedBlobs:
    """A store that gives other bytes for some blobs, unverified; None for a deleted one."""

    blobs: BlobReader
    changed: Mapping[Digest, bytes | None]

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        if digest not in self.changed:
            return self.blobs.get(digest, limit)
        data = self.changed[digest]
        if data is None:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        return data

    def has(self, digest: Digest) -> bool:
        return self.changed.get(digest, b"") is not None and self.blobs.has(digest)
