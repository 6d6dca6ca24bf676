"""Documents of a round that are blobs: its record and its incidents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.incidents import Incident, Incidents, decode_incidents
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.history.round import HistoryRound

Document = TypeVar("Document")


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents that a round's decision names, where they are available and of this round.

    Attributes:
        record: the basis of the decision; the result that was voted on binds it.
        incidents: failures while voting, reported by the decision's sender.
    """

    record: RoundRecord | None = None
    incidents: Incidents | None = None
    names_incidents: bool = False

    @property
    def has_incidents(self) -> bool:
        """True if the incidents document is available, or the decision names none."""
        return self.incidents is not None or not self.names_incidents

    @property
    def reported_incidents(self) -> tuple[Incident, ...]:
        """Incidents that the decision's sender reports, in the document's order."""
        return () if self.incidents is None else self.incidents.incidents

    @property
    def payloads(self) -> dict[ClientId, Digest]:
        """Digests in the record: of usable updates and of malformed payloads."""
        return {} if self.record is None else self.record.named_payloads()


NO_DOCUMENTS = Documents()


def read_documents(blobs: BlobReader, round_: HistoryRound) -> Documents:
    """Return the documents of a round; a round that is not decided has none."""
    decided = round_.decided
    if decided is None:
        return NO_DOCUMENTS
    record = _read(blobs, decided.record, decode_record)
    if record is not None and (record.round, record.base) != (decided.round, decided.base):
        record = None
    return Documents(record, _incidents(blobs, decided), decided.incidents != NO_DIGEST)


def missing_payloads(documents: Documents, blobs: BlobReader) -> tuple[ClientId, ...]:
    """Return the clients, ascending, whose payload the record names and the store lacks."""
    named = sorted(documents.payloads.items())
    return tuple(client for client, payload in named if not blobs.has(payload))


def read_run(blobs: BlobReader, config: Digest) -> RunDocument | None:
    """Return a run's configuration; None if it is missing, damaged or no configuration."""
    return _read(blobs, config, decode_run)


def _incidents(blobs: BlobReader, decided: RoundDecided) -> Incidents | None:
    if decided.incidents == NO_DIGEST:
        return None
    incidents = _read(blobs, decided.incidents, decode_incidents)
    if incidents is None or (incidents.round, incidents.base) != (decided.round, decided.base):
        return None
    return incidents


def _read(
    blobs: BlobReader, digest: Digest, decode: Callable[[bytes], Document]
) -> Document | None:
    try:
        return decode(blobs.get(digest, MAX_DOCUMENT_BYTES))
    except (BlobError, EncodingError):
        return None
