"""The blobs that a round names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.protocol.documents.record import decode_record
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from ledger.chain.round_ledger import RoundHistory
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.types import ClientId, Digest
    from ledger.storage.blobs import BlobReader


class BlobUse(StrEnum):
    """The use of a blob in a round."""

    PAYLOAD = "payload"
    VECTOR = "vector"
    RECORD = "record"
    INCIDENTS = "incidents"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A blob that a round names.

    Attributes:
        use: what for.
        client: whose it is; None for what is everybody's.
        digest: its sha256.
    """

    use: BlobUse
    client: ClientId | None
    digest: Digest


def blobs_of_round(
    ledger: RoundHistory, blobs: BlobReader, round_number: int
) -> tuple[NamedBlob, ...] | None:
    """Return the blobs that a decided round names, None if it has no decision.

    Args:
        ledger: the run's contract.
        blobs: where the round's record is; without it nothing tells payloads and vectors.
        round_number: t.
    """
    events = [recorded.event for recorded in ledger.round_events(round_number)]
    decided = next((event for event in events if isinstance(event, RoundDecided)), None)
    if decided is None:
        return None
    named = [
        NamedBlob(BlobUse.RECORD, None, decided.record),
        NamedBlob(BlobUse.MODEL, None, decided.model),
    ]
    if decided.incidents != NO_DIGEST:
        named.append(NamedBlob(BlobUse.INCIDENTS, None, decided.incidents))
    try:
        record = decode_record(blobs.get(decided.record))
    except (BlobError, EncodingError):
        return tuple(named)
    return (*named, *_published(record))


def _published(record: RoundRecord) -> list[NamedBlob]:
    malformed = {d.client: d.payload for d in record.dropouts if d.payload is not None}
    payloads = malformed | dict(record.payloads())
    claims = (*record.scores, *(entry.signed for entry in record.refused))
    vectors = sorted((claim.scores.member, claim.scores.digest) for claim in claims)
    return [
        *(NamedBlob(BlobUse.PAYLOAD, client, payloads[client]) for client in sorted(payloads)),
        *(NamedBlob(BlobUse.VECTOR, member, digest) for member, digest in vectors),
    ]
