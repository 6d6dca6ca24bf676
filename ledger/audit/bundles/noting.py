"""A blob store that notes what of it was read: what a round needs is what checking it has read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.storage.blobs import MAX_BLOB_BYTES

if TYPE_CHECKING:
    from ledger.protocol.types import Digest
    from ledger.storage.blobs import BlobReader


class RecordingBlobs:
    """A blob store that is read through.

    Attributes:
        read: digests of the blobs that were there.
    """

    def __init__(self, blobs: BlobReader) -> None:
        self.read: set[Digest] = set()
        self._blobs = blobs

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified, and note that it was there.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """
        data = self._blobs.get(digest, limit)
        self.read.add(digest)
        return data

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it."""
        return self._blobs.has(digest)
