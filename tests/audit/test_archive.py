"""Blobs as an audit reads them: each once, hashed once, and no store's word taken for one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ledger.audit.engine import audit
from ledger.audit.evidence import Archive, BlobFailure, UnavailableBlob
from ledger.audit.report import BlobKind
from ledger.protocol.encoding import sha256
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Digest
from ledger.storage.blobs import MAX_BLOB_BYTES, MemoryBlobs
from tests.audit.blobs import ChangedBlobs

if TYPE_CHECKING:
    from tests.audit.runs import Run


class CountingBlobs(MemoryBlobs):
    """Blobs that count how often each of them is read."""

    def __init__(self, held: MemoryBlobs) -> None:
        super().__init__()
        self._objects = held._objects
        self.reads: Counter[Digest] = Counter()

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        self.reads[digest] += 1
        return super().get(digest, limit)

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        self.reads[digest] += 1
        return super().get_payload(digest, limit)


class MistakenBlobs(MemoryBlobs):
    """A store that hashes what it gives, and gives something else."""

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:  # noqa: ARG002
        return Payload.of(b"other bytes")


def test_an_audit_reads_each_blob_once(honest: Run) -> None:
    blobs = CountingBlobs(honest.blobs)
    report = audit(honest.ledger, blobs)
    assert report.counts["blobs"] == len(blobs.reads)
    assert set(blobs.reads.values()) == {1}
    assert report.counts["bytes"] == sum(len(honest.blobs.get(one)) for one in blobs.reads)


@pytest.mark.parametrize("is_hashing", [True, False])
def test_digests_reported_by_a_store_are_checked_anyway(*, is_hashing: bool) -> None:
    digest = sha256(b"bytes")
    store = MistakenBlobs() if is_hashing else ChangedBlobs(MemoryBlobs(), {digest: b"other bytes"})
    found = Archive(store).read(BlobKind.PAYLOAD, digest, 1)
    assert isinstance(found, UnavailableBlob)
    assert found.loss is BlobFailure.DAMAGED
