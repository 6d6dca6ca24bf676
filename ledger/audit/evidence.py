"""Evidence of a round as an auditor reads it: blobs, incidents and the chain of models.

The document is not signed: one that is missing, or accuses without proof, changes no outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ledger.audit.report import BlobKind
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES, Incident, decode_incidents
from ledger.protocol.encoding import aggregation_result, sha256, vector_from_bytes, vector_view
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError, EncodingError
from ledger.protocol.inputs import Evidence, Inputs, primary_seat
from ledger.protocol.judgement import (
    Judgement,
    Ranking,
    counted_vectors,
    judge,
    next_model,
    rank_trainers,
)
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import Distances, OwnRuleName, plain_distances
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, IncidentKind, RefusalReason, VoteKind
from ledger.protocol.validation import (
    COUNTING_MARGINS,
    DistanceTable,
    Violation,
    ViolationCode,
    validate_claims,
    validate_scores,
    validate_updates,
)
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


@dataclass(frozen=True)
class ModelStep:
    """One recorded model, and the one that follows from what was before.

    Attributes:
        recorded: digest of the model, as the chain names it.
        lost: why its blob is not to be had; None if it is.
        malformed: why its blob is no model; empty if it is one.
        is_known_before: whether w_t is known.
        lacking: accepted clients whose update is not to be had.
        computed: w_{t+1} from w_t and the accepted updates; None for want of one of them.
    """

    recorded: Digest
    lost: UnavailableBlob | None
    malformed: str
    is_known_before: bool = True
    lacking: tuple[ClientId, ...] = ()
    computed: NDArray[np.float32] | None = None
    digest: Digest | None = None


class ModelChain:
    """The global model from round to round; keeps the newest only.

    Attributes:
        vector: w_t; None if it could neither be read nor recomputed.
    """

    def __init__(self) -> None:
        self.vector: NDArray[np.float32] | None = None
        self._digest: Digest | None = None

    def begin(self, digest: Digest, dimension: int, archive: Archive) -> ModelStep:
        """Return the first model as it was read."""
        lost, malformed = self._read(digest, dimension, None, archive)
        return ModelStep(digest, lost, malformed)

    def start_from(
        self, digest: Digest, dimension: int, archive: Archive
    ) -> UnavailableBlob | None:
        """Read the model that a round starts from, unless the round before led to it.

        Args:
            digest: of w_t, as the chain has it.

        Returns:
            Why its blob is not to be had, if it had to be read and is not; said of another round.
        """
        if digest == self._digest:
            return None
        self._digest, self.vector = digest, None
        data = archive.read_again(BlobKind.MODEL, digest, None)
        if isinstance(data, UnavailableBlob):
            return data
        self.vector = _model(data, dimension)
        return None

    def displacement_of(
        self, inputs: Inputs, before: Digest | None, archive: Archive
    ) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,); None if it is not known, or the distances need none.

        Args:
            before: digest of w_s; None if that is not known.
        """
        if not inputs.needs_displacement or before is None or self.vector is None:
            return None
        data = archive.read_again(BlobKind.MODEL, before, inputs.round)
        if isinstance(data, UnavailableBlob):
            return None  # said of the round that it came from
        vector = _model(data, len(self.vector))
        return None if vector is None else displacement(vector, self.vector)

    def follow(self, evidence: RoundEvidence, archive: Archive) -> ModelStep:
        """Return w_{t+1} as it is recorded and as it follows, and go on from there."""
        event, before = evidence.event, self.vector
        lacking = tuple(client for client in _entering(evidence) if client not in evidence.updates)
        computed = digest = None
        if before is not None and event.accepted and not lacking:
            computed = next_model(evidence.inputs, before, event.accepted, evidence.updates)
            digest = sha256(vector_view(computed))
        if event.model != self._digest:
            self.vector = computed if digest == event.model else None
        dimension = evidence.inputs.parameters.dimension
        lost, malformed = self._read(event.model, dimension, event.round, archive)
        return ModelStep(
            event.model, lost, malformed, before is not None, lacking, computed, digest
        )

    def _read(
        self, digest: Digest, dimension: int, at: int | None, archive: Archive
    ) -> tuple[UnavailableBlob | None, str]:
        """Read a model; go on from it unless it was recomputed already."""
        self._digest = digest
        data = archive.read(BlobKind.MODEL, digest, at)
        if isinstance(data, UnavailableBlob):
            return data, ""
        if self.vector is None:
            try:
                self.vector = vector_from_bytes(data, dimension)
            except EncodingError as error:
                return None, str(error)
        return None, ""


def _entering(evidence: RoundEvidence) -> Sequence[ClientId]:
    if evidence.inputs.parameters.compares_directions and evidence.record is not None:
        return evidence.record.clients  # all lengths determine how far an update is clipped
    return evidence.event.accepted


class ModelDigests:
    """Digests of the models that rounds began with, as far back as distances need them."""

    def __init__(self) -> None:
        self._began: dict[int, Digest] = {}

    def opened(self, round_number: int, digest: Digest) -> None:
        """Take down which model a round began with."""
        self._began[round_number] = digest

    def before(self, inputs: Inputs) -> Digest | None:
        """Return the digest of w_s, where a round's travel begins; None if it has none."""
        needs = inputs.needs_displacement
        first = window_start(inputs.round) if needs else inputs.round
        self._began = {at: digest for at, digest in self._began.items() if at >= first}
        return self._began.get(first) if needs else None


def _model(data: bytes, dimension: int) -> NDArray[np.float32] | None:
    try:
        return vector_from_bytes(data, dimension)
    except EncodingError:
        return None
