"""Blobs as an auditor reads them: hashed here again, and what cannot be had said to be so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ledger.audit.codes import BlobKind
from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.blobs.store import BlobReader
    from ledger.protocol.types import ClientId, Digest

_LIMITS = {
    BlobKind.CONFIGURATION: MAX_DOCUMENT_BYTES,
    BlobKind.RECORD: MAX_DOCUMENT_BYTES,
    BlobKind.INCIDENTS: MAX_DOCUMENT_BYTES,
    # Malformed ones are evidence too, and may have any size that a store gives.
    BlobKind.PAYLOAD: MAX_BLOB_BYTES,
    BlobKind.VECTOR: MAX_VECTOR_BYTES,
    BlobKind.MODEL: MAX_BLOB_BYTES,
}


class Loss(Enum):
    """Why a blob is not to be had."""

    MISSING = auto()
    UNREACHABLE = auto()
    DAMAGED = auto()
    TOO_LARGE = auto()


@dataclass(frozen=True, slots=True)
class Lost:
    """A blob that is not to be had.

    Attributes:
        loss: why.
        kind: what it should be.
        digest: its sha256.
        round: whose it is; None where it is the run's.
        clients: whose it is.
        detail: what the store says.
    """

    loss: Loss
    kind: BlobKind
    digest: Digest
    round: int | None
    clients: tuple[ClientId, ...]
    detail: str

    @property
    def is_bad(self) -> bool:
        """Whether there is something under the name that cannot be what was named."""
        return self.loss in {Loss.DAMAGED, Loss.TOO_LARGE}


@runtime_checkable
class Listed(Protocol):
    """A store that can say what it holds."""

    def digests(self) -> Iterable[Digest]:
        """Return the names of all blobs, unverified and in any order."""


class Archive:
    """A blob store as one audit reads it.

    Attributes:
        blobs_read: how many blobs were read and found to be what they should be.
        bytes_read: how long they are together.
    """

    def __init__(self, blobs: BlobReader) -> None:
        self._blobs = blobs
        self._named: set[Digest] = set()
        self.blobs_read = 0
        self.bytes_read = 0

    def read(
        self, kind: BlobKind, digest: Digest, at: int | None, clients: tuple[ClientId, ...] = ()
    ) -> bytes | Lost:
        """Return a blob, hashed here too: the audit takes no store's word for it.

        Args:
            kind: what it is.
            digest: its sha256.
            at: round.
            clients: whose it is.

        Returns:
            Its bytes, or why they are not to be had.
        """
        self._named.add(digest)
        limit = _LIMITS[kind]
        try:
            data = self._blobs.get(digest, limit)
        except BlobMissingError as error:
            return Lost(Loss.MISSING, kind, digest, at, clients, str(error))
        except BlobUnreachableError as error:
            return Lost(Loss.UNREACHABLE, kind, digest, at, clients, str(error))
        except BlobError as error:
            # Whoever names a blob that is too large does not damage the store that holds it.
            loss = Loss.TOO_LARGE if self._is_whole(digest, limit) else Loss.DAMAGED
            return Lost(loss, kind, digest, at, clients, str(error))
        if len(data) > limit or sha256(data) != digest:
            detail = "the store gives other bytes"
            return Lost(Loss.DAMAGED, kind, digest, at, clients, detail)
        self.blobs_read += 1
        self.bytes_read += len(data)
        return data

    def unnamed(self) -> tuple[Digest, ...]:
        """Return what the store holds besides all that was read; nothing where it cannot say."""
        if not isinstance(self._blobs, Listed):
            return ()
        return tuple(digest for digest in self._blobs.digests() if digest not in self._named)

    def _is_whole(self, digest: Digest, limit: int) -> bool:
        try:
            return limit < MAX_BLOB_BYTES and sha256(self._blobs.get(digest)) == digest
        except BlobError:
            return False
