"""Evidence of a decided round: inputs that the chain has closed, the record, and its blobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ledger.audit.evidence.archive import Archive, RoundBlobs, UnavailableBlob
from ledger.audit.report import BlobKind
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Evidence, Inputs
from ledger.protocol.judgement import Ranking, counted_vectors, rank_trainers
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.payload import Payload
from ledger.protocol.rules.distance import Distances, plain_distances
from ledger.protocol.rules.own import OwnRuleName
from ledger.protocol.scores import COUNTING_MARGINS, DistanceTable
from ledger.protocol.types import ClientId, Digest, RefusalReason
from ledger.protocol.validation import (
    Violation,
    ViolationCode,
    validate_claims,
    validate_scores,
    validate_updates,
)

_UNRANKABLE = {ViolationCode.TOO_FEW_SCORES, ViolationCode.TOO_FEW_TRAINERS}
"""Objections after which the counted vectors make no ranking."""

_UNREAD = {ViolationCode.VECTOR_MISSING, ViolationCode.VECTOR_TOO_LONG}
"""Objections after which a vector is not read; only of a counted one it is missed in a ranking."""


@dataclass(frozen=True)
class RoundEvidence:
    """A decided round with all that an auditor could read of it.

    Attributes:
        inputs: what the chain has closed.
        record: what the decision rests on; None if it cannot be read.
        malformed: why the record's blob is no record; empty if it is one, or is not to be had.
        lost: blobs that are not to be had, of the record and of those that it names.
        blobs: payloads and vectors that could be read, of those that the record names. The
            model among them only supplies the dimension: step 9 knows the true one.
        rules: names of own rules whose code the auditor has named.
    """

    event: RoundDecided
    inputs: Inputs
    record: RoundRecord | None
    malformed: str
    lost: tuple[UnavailableBlob, ...]
    blobs: Evidence
    distances: Distances = plain_distances
    rules: frozenset[str] = frozenset()

    @property
    def unknown_distance(self) -> OwnRuleName | None:
        """The run's own distance, if the auditor has not named its code."""
        name = self.inputs.parameters.distance
        return None if name in self.rules else OwnRuleName.of(name)

    @cached_property
    def updates(self) -> Mapping[ClientId, NDArray[np.float32]]:
        """Δ of each client whose update the record counts, as far as it is there and is one."""
        counted = self.record.clients if self.record is not None else ()
        updates = {client: self.blobs.updates.get(client) for client in counted}
        return {client: update for client, update in updates.items() if update is not None}

    @cached_property
    def is_whole(self) -> bool:
        """Say whether every update is available that the record counts."""
        return self.record is not None and self.updates.keys() == set(self.record.clients)

    @cached_property
    def table(self) -> DistanceTable | None:
        """True distances as far as they can be computed; None if none can."""
        if self.record is None or self.lacks_displacement or self.unknown_distance is not None:
            return None
        if self.inputs.parameters.compares_directions and not self.is_whole:
            return None
        return DistanceTable(self.inputs, self.updates, self.distances, self.blobs.displacement)

    @property
    def lacks_displacement(self) -> bool:
        """Say whether the distances need the model's recent displacement, and it is not known."""
        return self.inputs.needs_displacement and self.blobs.displacement is None

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """Violations in the record, as far as its blobs are available."""
        if self.record is None:
            return ()
        claims = validate_claims(self.inputs, self.record)
        return (*claims, *validate_updates(self.record, self.blobs), *self.score_violations)

    @cached_property
    def score_violations(self) -> tuple[Violation, ...]:
        """Violations in the scores, counted and refused."""
        if self.record is None:
            return ()
        table = self.table
        whole = table if self.is_whole else None
        violations = validate_scores(self.inputs, self.record, self.blobs, whole)
        if table is not None and not self.is_whole:
            violations += _false_distances(self, self.record, table)
        return tuple(violations)

    @cached_property
    def ranking(self) -> Ranking | None:
        """Ranking of the counted vectors; None if they cannot be combined."""
        if self.record is None:
            return None
        counted = {signed.scores.member for signed in self.record.scores}
        if any(_prevents_ranking(doubt, counted) for doubt in self.score_violations):
            return None
        vectors = counted_vectors(self.record, self.blobs)
        return rank_trainers(self.inputs.parameters, vectors)


def _prevents_ranking(doubt: Violation, counted: Collection[ClientId]) -> bool:
    """Say whether vectors with such a doubt cannot be put together; false ones still can."""
    if doubt.code in _UNREAD:
        return doubt.clients[0] in counted
    if doubt.code is ViolationCode.SCORES_DO_NOT_COUNT:
        return doubt.reason is not RefusalReason.FALSE_DISTANCE
    return doubt.code in _UNRANKABLE


def _false_distances(
    evidence: RoundEvidence, record: RoundRecord, table: DistanceTable
) -> Iterator[Violation]:
    """Yield what is false among the distances whose updates are there."""
    for vector in counted_vectors(record, evidence.blobs):
        if vector.clients != record.clients or not table.can_score(vector.member):
            continue
        for client, claim in vector.claims().items():
            if client in evidence.updates and table.is_off(
                client, vector.member, claim, COUNTING_MARGINS
            ):
                named = (vector.member, client)
                reason = RefusalReason.FALSE_DISTANCE
                yield Violation(ViolationCode.SCORES_DO_NOT_COUNT, named, reason)
                break


def read_round_evidence(
    inputs: Inputs,
    event: RoundDecided,
    archive: Archive,
    distances: Distances = plain_distances,
    displacement: NDArray[np.float32] | None = None,
    rules: frozenset[str] = frozenset(),
) -> RoundEvidence:
    """Return the evidence of a decided round, and what of it is not to be had.

    Args:
        inputs: what the chain has closed.
        displacement: w_s − w_t, shape (d,); None if it is not known, or the distances need none.
        rules: names of own rules whose code the auditor has named.
    """
    record: RoundRecord | None = None
    malformed, blobs = "", RoundBlobs(archive, event.round)
    payloads: dict[ClientId, Payload] = {}
    vectors: dict[Digest, bytes] = {}
    if (data := blobs.read(BlobKind.RECORD, event.record)) is not None:
        try:
            record = decode_record(data)
        except EncodingError as error:
            malformed = str(error)
    if record is not None:
        for client, digest in record.named_payloads().items():
            if (data := blobs.read(BlobKind.PAYLOAD, digest, client)) is not None:
                payloads[client] = Payload(data, digest)
        for digest, member in named_vectors(record).items():
            if (data := blobs.read(BlobKind.VECTOR, digest, member)) is not None:
                vectors[digest] = data[: MAX_VECTOR_BYTES + 1]  # enough to see that it is longer
    stand_in = np.broadcast_to(np.float32(0), inputs.parameters.dimension)
    form = inputs.parameters.payload_form
    evidence = Evidence(stand_in, payloads, vectors, displacement=displacement, form=form)
    return RoundEvidence(
        event, inputs, record, malformed, tuple(blobs.lost), evidence, distances, rules
    )


def named_vectors(record: RoundRecord) -> dict[Digest, ClientId]:
    """Return the score vectors that a check of a record reads, and their members."""
    read = record.claims_with_vectors
    return {signed.scores.digest: signed.scores.member for signed in read}
