"""Accusations of the incidents document, as far as the members' own signatures prove them.

The document is not signed: one that is missing, or accuses without proof, changes no outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ledger.audit.evidence.archive import Archive, RoundBlobs, UnavailableBlob
from ledger.audit.evidence.round_evidence import RoundEvidence, named_vectors
from ledger.audit.report import BlobKind
from ledger.protocol.consensus import primary_seat
from ledger.protocol.documents.incidents import Incident, decode_incidents
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.encoding import aggregation_result
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Evidence
from ledger.protocol.judgement import Judgement, judge
from ledger.protocol.payload import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import NO_DIGEST, Digest, IncidentKind, VoteKind
from ledger.protocol.validation import ViolationCode

UNPROVEN = frozenset({IncidentKind.SILENT, IncidentKind.NO_QUORUM})
"""What nobody could prove."""
_WANTING = {ViolationCode.UPDATE_MISSING, ViolationCode.VECTOR_MISSING, ViolationCode.MODEL_UNKNOWN}
"""Objections for want of a blob, which prove nothing against a proposal."""


@dataclass(frozen=True, slots=True)
class Accusations:
    """The accusations of a round's incidents document.

    Attributes:
        holding: accusations that are proven, or that cannot be proven.
        lost: blobs that they name and that are not to be had, the document's own too.
    """

    holding: tuple[Incident, ...]
    ignored: int
    lost: tuple[UnavailableBlob, ...]


def read_accusations(
    evidence: RoundEvidence, model: NDArray[np.float32] | None, archive: Archive
) -> Accusations:
    """Return whom a round's incidents accuse, and whether that holds.

    Args:
        model: w_t, shape (d,); None if it is not known.
    """
    blobs = RoundBlobs(archive, evidence.event.round)
    proposals = _Proposals(evidence, model, blobs)
    incidents = _incidents(evidence, blobs)
    holding = tuple(incident for incident in incidents if _holds(incident, evidence, proposals))
    return Accusations(holding, len(incidents) - len(holding), tuple(blobs.lost))


def _incidents(evidence: RoundEvidence, blobs: RoundBlobs) -> tuple[Incident, ...]:
    """Return the incidents of a round; none if the document is missing, bogus or of another."""
    event = evidence.event
    if (
        event.incidents == NO_DIGEST
        or (data := blobs.read(BlobKind.INCIDENTS, event.incidents)) is None
    ):
        return ()
    try:
        document = decode_incidents(data)
    except EncodingError:
        return ()
    is_ours = (document.round, document.base) == (event.round, event.base)
    return document.incidents if is_ours else ()


def _holds(incident: Incident, evidence: RoundEvidence, proposals: _Proposals) -> bool:
    """Return whether an accusation is proven, or cannot be proven."""
    inputs = evidence.inputs
    if incident.member >= len(inputs.registry):
        return False
    if incident.kind in UNPROVEN:
        committee = inputs.participants.committee
        place = primary_seat(inputs.seed, incident.phase, incident.view, len(committee))
        has_failed = incident.view < evidence.event.views[incident.phase - 1]
        return has_failed and committee[place] == incident.member
    address = inputs.registry[incident.member].address
    if not all(
        is_signed_by(address, inputs.domain, signed.vote, signed.signature)
        for signed in incident.votes
    ):
        return False
    if incident.kind is IncidentKind.EQUIVOCATION:
        first, other = (signed.vote for signed in incident.votes)
        return first.slot == other.slot and first != other
    return proposals.is_wrong(incident)


class _Proposals:
    """Judges the records of requests that did not become decisions, each record once."""

    def __init__(
        self, evidence: RoundEvidence, model: NDArray[np.float32] | None, reader: RoundBlobs
    ) -> None:
        self._round = evidence
        self._model = model
        self._reader = reader
        self._judged: dict[Digest, Judgement | bool] = {}

    def is_wrong(self, incident: Incident) -> bool:
        """Say whether a signed request contradicts the chain, its record or what follows."""
        vote, opening = incident.votes[0].vote, incident.opening
        if vote.kind is not VoteKind.REQUEST or opening is None:
            return False
        if aggregation_result(opening) != vote.result:
            return False
        if vote.base != self._round.inputs.closing.base:
            return True
        judged = self._judgement(opening.record)
        if isinstance(judged, bool):
            return judged
        # Without w_t all but the next model can still be compared.
        true = judged.opening
        true = replace(true, model=opening.model) if self._model is None else true
        return true != opening or judged.set_digest(incident.phase) != vote.set_digest

    def _judgement(self, digest: Digest) -> Judgement | bool:
        """Return what follows from a record; else whether it is wrong in itself."""
        # Each member can be a primary once and more; whoever fills the document with more
        # records than that wants to keep auditors busy.
        most = len(self._round.inputs.participants.committee)
        if digest not in self._judged and len(self._judged) < most:
            self._judged[digest] = self._judge(digest)
        return self._judged.get(digest, False)

    def _judge(self, digest: Digest) -> Judgement | bool:
        if self._round.unknown_distance is not None:
            return False
        record = self._record(digest)
        if isinstance(record, bool):
            return record
        judgement, violations = judge(
            self._round.inputs, record, self._evidence(record), self._round.distances
        )
        if judgement is not None:
            return judgement
        wanting = (
            _WANTING if self._model is not None else _WANTING | {ViolationCode.MODEL_NOT_FINITE}
        )
        return any(doubt.code not in wanting for doubt in violations)

    def _record(self, digest: Digest) -> RoundRecord | bool:
        """Return a record; else whether it is seen to be none."""
        if digest == self._round.event.record and self._round.record is not None:
            return self._round.record
        data = self._reader.read(BlobKind.RECORD, digest)
        if data is None:
            return False
        try:
            return decode_record(data)
        except EncodingError:
            return True

    def _evidence(self, record: RoundRecord) -> Evidence:
        """Return payloads and vectors of a record as far as they can be had."""
        reader, blobs = self._reader, self._round.blobs
        payloads = {}
        for client, digest in record.named_payloads().items():
            payload = blobs.payloads.get(client)
            if payload is None or payload.digest != digest:
                data = reader.read(BlobKind.PAYLOAD, digest, client)
                payload = None if data is None else Payload(data, digest)
            if payload is not None:
                payloads[client] = payload
        vectors = {}
        for digest, member in named_vectors(record).items():
            data = blobs.vectors.get(digest) or reader.read(BlobKind.VECTOR, digest, member)
            if data is not None:
                vectors[digest] = data
        model = blobs.model if self._model is None else self._model
        return Evidence(model, payloads, vectors, displacement=blobs.displacement, form=blobs.form)
