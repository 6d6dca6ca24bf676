"""The blobs that an audit reads, and a store that lies or has lost some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.report import BlobKind
from ledger.protocol.documents.record import decode_record
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import Digest, RefusalReason
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

if TYPE_CHECKING:
    from tests.audit.runs import Run


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


def kinds(run: Run) -> dict[BlobKind | str, list[Digest]]:
    """Return the blobs of each kind that the audit reads, in the order of rounds."""
    recorded = run.ledger.recorded_in(0, run.chain.head().number)
    events = [r.event for r in recorded if isinstance(r.event, RoundDecided)]
    records = [decode_record(run.blobs.get(event.record)) for event in events]
    return {
        BlobKind.CONFIGURATION: [run.ledger.deployment().config],
        "first model": [run.document.initial_model],
        BlobKind.MODEL: [event.model for event in events],
        BlobKind.RECORD: [event.record for event in events],
        BlobKind.PAYLOAD: [u.payload for record in records for u in record.updates],
        "malformed payload": [d.payload for r in records for d in r.dropouts if d.payload],
        BlobKind.VECTOR: [s.scores.digest for record in records for s in record.scores],
        "refused score vector": [
            entry.signed.scores.digest
            for record in records
            for entry in record.refused
            if entry.reason is not RefusalReason.TWO_VECTORS
        ],
    }
