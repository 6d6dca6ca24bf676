"""Blobs as an auditor reads them: hashed here again, and what is missing or damaged noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.codes import BlobKind, Count, Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import hexed
from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.blobs.store import BlobReader
    from ledger.protocol.types import ClientId, Digest

_LIMITS = {
    BlobKind.CONFIGURATION: MAX_DOCUMENT_BYTES,
    BlobKind.RECORD: MAX_DOCUMENT_BYTES,
    # Malformed ones are evidence too, and may have any size that a store gives.
    BlobKind.PAYLOAD: MAX_BLOB_BYTES,
    BlobKind.VECTOR: MAX_VECTOR_BYTES,
    BlobKind.MODEL: MAX_BLOB_BYTES,
}


@dataclass(frozen=True, slots=True)
class Archive:
    """A blob store and the log of what it does not hold, or holds wrongly."""

    blobs: BlobReader
    log: AuditLog

    def get(self, digest: Digest, limit: int) -> bytes:
        """Return a blob, hashed here too: the audit takes no store's word for it.

        Args:
            digest: its sha256.
            limit: the size that it may have.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """
        data = self.blobs.get(digest, limit)
        if len(data) > limit or sha256(data) != digest:
            raise BlobError("the store gives other bytes")
        return data

    def read(
        self, kind: BlobKind, digest: Digest, at: int | None, clients: tuple[ClientId, ...] = ()
    ) -> bytes | None:
        """Return a blob that must be there; None if it is missing or damaged, which is noted.

        Args:
            kind: what it is.
            digest: its sha256.
            at: round.
            clients: whose it is.
        """
        name = hexed(digest)
        try:
            data = self.get(digest, _LIMITS[kind])
        except BlobMissingError:
            self.log.lack(Missing(Need.BLOB, at, clients, kind, name), Step.BLOBS)
            return None
        except BlobError as error:
            contradiction = Contradiction(Fact.BLOB, at, clients, str(kind), name, str(error))
            self.log.contradict(Step.BLOBS, contradiction)
            return None
        self.log.counts[Count.BLOBS] += 1
        self.log.counts[Count.BYTES] += len(data)
        return data

    def peek(self, digest: Digest, limit: int) -> bytes | None:
        """Return a blob that nothing rests on; None if it is missing, damaged or too large.

        Args:
            digest: its sha256.
            limit: the size that it may have.
        """
        try:
            return self.get(digest, limit)
        except BlobError:
            return None
