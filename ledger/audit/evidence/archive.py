"""Blobs as an auditor reads them: hashed in this process, and what cannot be had said to be so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from ledger.audit.report import BlobKind
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

_LIMITS = {
    BlobKind.CONFIGURATION: MAX_DOCUMENT_BYTES,
    BlobKind.RECORD: MAX_DOCUMENT_BYTES,
    BlobKind.INCIDENTS: MAX_DOCUMENT_BYTES,
    # Malformed ones are evidence too, and may have any size that a store gives.
    BlobKind.PAYLOAD: MAX_BLOB_BYTES,
    # Whoever signed a longer one than members take has signed it all the same.
    BlobKind.VECTOR: MAX_BLOB_BYTES,
    BlobKind.MODEL: MAX_BLOB_BYTES,
}


class BlobFailure(Enum):
    """Why a blob is not to be had."""

    MISSING = auto()
    UNREACHABLE = auto()
    DAMAGED = auto()
    TOO_LARGE = auto()


@dataclass(frozen=True, slots=True)
class UnavailableBlob:
    """A blob that is not to be had.

    Attributes:
        digest: its sha256.
        round: whose it is; None where it is the run's.
    """

    loss: BlobFailure
    kind: BlobKind
    digest: Digest
    round: int | None
    clients: tuple[ClientId, ...]
    detail: str

    @property
    def is_bad(self) -> bool:
        """Say whether the blob of this name exists and is not what was named."""
        return self.loss in {BlobFailure.DAMAGED, BlobFailure.TOO_LARGE}


class Archive:
    """A blob store as one audit, or one round of it, reads it.

    Attributes:
        blobs_read: how many blobs were read and found to be what they should be.
    """

    def __init__(self, blobs: BlobReader) -> None:
        self.named: set[Digest] = set()
        self.blobs_read = 0
        self.bytes_read = 0
        self._blobs = blobs
        # Of a reader that hashes in this process, so that nothing is hashed again.
        self._hashed: Callable[[Digest, int], Payload]
        self._hashed = getattr(blobs, "get_payload", None) or self._hash

    def read(
        self, kind: BlobKind, digest: Digest, at: int | None, clients: tuple[ClientId, ...] = ()
    ) -> bytes | UnavailableBlob:
        """Return a blob whose digest was found in this process: an audit takes no word for it.

        Args:
            digest: its sha256.

        Returns:
            Its bytes, or why they are not to be had.
        """
        self.named.add(digest)
        data = self.read_again(kind, digest, at, clients)
        if not isinstance(data, UnavailableBlob):
            self.blobs_read += 1
            self.bytes_read += len(data)
        return data

    def read_again(
        self, kind: BlobKind, digest: Digest, at: int | None, clients: tuple[ClientId, ...] = ()
    ) -> bytes | UnavailableBlob:
        """Return a blob that is counted elsewhere, as `read` does."""
        limit = _LIMITS[kind]
        try:
            payload = self._hashed(digest, limit)
        except BlobMissingError as error:
            return UnavailableBlob(BlobFailure.MISSING, kind, digest, at, clients, str(error))
        except BlobUnreachableError as error:
            return UnavailableBlob(BlobFailure.UNREACHABLE, kind, digest, at, clients, str(error))
        except BlobError as error:
            # Whoever names a blob that is too large does not damage the store that holds it.
            loss = BlobFailure.TOO_LARGE if self._is_whole(digest, limit) else BlobFailure.DAMAGED
            return UnavailableBlob(loss, kind, digest, at, clients, str(error))
        if payload.size > limit or payload.digest != digest:
            detail = "the store gives other bytes"
            return UnavailableBlob(BlobFailure.DAMAGED, kind, digest, at, clients, detail)
        return bytes(payload.data)  # a copy only of what is no `bytes`

    def _hash(self, digest: Digest, limit: int) -> Payload:
        """Return a blob, hashed once: by the store where it is one that does, else here."""
        return Payload.of(self._blobs.get(digest, limit))

    def _is_whole(self, digest: Digest, limit: int) -> bool:
        try:
            return limit < MAX_BLOB_BYTES and sha256(self._blobs.get(digest)) == digest
        except BlobError:
            return False


@dataclass(frozen=True, slots=True)
class RoundBlobs:
    """Reads the blobs of one round, and keeps which are not to be had."""

    archive: Archive
    round: int
    lost: list[UnavailableBlob] = field(default_factory=list)

    def read(self, kind: BlobKind, digest: Digest, *clients: ClientId) -> bytes | None:
        """Return a blob, None if it is not to be had."""
        data = self.archive.read(kind, digest, self.round, clients)
        if not isinstance(data, UnavailableBlob):
            return data
        self.lost.append(data)
        return None


def unnamed_blobs(blobs: BlobReader, named: Collection[Digest]) -> tuple[Digest, ...]:
    """Return what a store holds besides some blobs; nothing where it cannot say."""
    digests = getattr(blobs, "digests", tuple)  # of a store that can say what it holds
    return tuple(digest for digest in digests() if digest not in named)
