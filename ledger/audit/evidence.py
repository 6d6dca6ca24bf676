"""Evidence that the checks judge: what the replay gave of a round, and what was published of it.

The incidents document is not signed: one that is missing, or accuses without proof, changes no
outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.audit.report import BlobKind
from ledger.chain.contract.codec import Call
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    Incident,
    RoundRecord,
    decode_incidents,
    decode_record,
)
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import INFINITY_BITS, aggregation_result, sha256, word_client
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError, EncodingError
from ledger.protocol.inputs import Evidence, Inputs, primary_seat
from ledger.protocol.judgement import (
    Judgement,
    Ranking,
    counted_vectors,
    judge,
    rank_trainers,
)
from ledger.protocol.ledger_state import (
    Deployment,
    Event,
    LedgerState,
    MinedCommitment,
    RoundDecided,
)
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import Distances, OwnRuleName, plain_distances
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Digest,
    Domain,
    IncidentKind,
    RefusalReason,
    VoteKind,
)
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

T = TypeVar("T")

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
    """A blob that is not to be had; `round` is None where it is the run's."""

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
    """A blob store as one audit, or one round of it, reads it; only sound blobs are counted."""

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
        """Return a blob that is hashed in this process, or why it is not to be had."""
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
        return {} if self.record is None else self.blobs.usable(self.record.clients)

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
        displacement: w_s − w_t, shape (d,); None if it is not known, or the distances need none.
        rules: names of own rules whose code the auditor has named.
    """
    blobs = RoundBlobs(archive, event.round)
    data = blobs.read(BlobKind.RECORD, event.record)
    record, malformed = (None, "") if data is None else decoded(decode_record, data)
    payloads, vectors = ({}, {}) if record is None else _read_named(record, blobs)
    stand_in = np.broadcast_to(np.float32(0), inputs.parameters.dimension)
    form = inputs.parameters.payload_form
    evidence = Evidence(stand_in, payloads, vectors, displacement=displacement, form=form)
    return RoundEvidence(
        event, inputs, record, malformed, tuple(blobs.lost), evidence, distances, rules
    )


def _read_named(
    record: RoundRecord, blobs: RoundBlobs, known: Evidence | None = None
) -> tuple[dict[ClientId, Payload], dict[Digest, bytes]]:
    """Return the payloads and vectors that a record names, as far as they can be had.

    Args:
        known: those that were read before; None for none.
    """
    payloads: dict[ClientId, Payload] = {}
    vectors: dict[Digest, bytes] = {}
    for client, digest in record.named_payloads().items():
        payload = None if known is None else known.payloads.get(client)
        if payload is not None and payload.digest == digest:
            payloads[client] = payload
        elif (data := blobs.read(BlobKind.PAYLOAD, digest, client)) is not None:
            payloads[client] = Payload(data, digest)
    claims = (signed.scores for signed in record.claims_with_vectors)
    for digest, member in {scores.digest: scores.member for scores in claims}.items():
        before = None if known is None else known.vectors.get(digest)
        vector = before or blobs.read(BlobKind.VECTOR, digest, member)
        if vector is not None:
            vectors[digest] = vector[: MAX_VECTOR_BYTES + 1]  # enough to see that it is longer
    return payloads, vectors


def decoded(decode: Callable[[bytes], T], data: bytes) -> tuple[T | None, str]:
    """Return the value that bytes encode, or why they encode none."""
    try:
        return decode(data), ""
    except EncodingError as error:
        return None, str(error)


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
    """Return whom a round's incidents accuse, and whether that holds; `model` is w_t, if known."""
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
    document, _ = decoded(decode_incidents, data)
    if document is None:
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
        record, _ = decoded(decode_record, data)
        return True if record is None else record

    def _evidence(self, record: RoundRecord) -> Evidence:
        blobs = self._round.blobs
        payloads, vectors = _read_named(record, self._reader, blobs)
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


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run: its contract, configuration and first model.

    Attributes:
        address: of the contract, EIP-55.
        document: its configuration; None if the blob cannot be read, or is none.
        lost: why the configuration's blob cannot be read; None if it can.
        malformed: why the blob is no configuration; empty if it is one.
        deployment: what the configuration demands; without one, what the contract says.
        is_possible: whether a contract of this code can have such sizes.
        code: what is wrong with the code on chain; empty if nothing is.
    """

    block: int
    domain: Domain
    address: str
    recorded: Deployment
    document: RunDocument | None
    lost: UnavailableBlob | None
    malformed: str
    deployment: Deployment
    is_possible: bool
    code: str
    model: ModelStep | None


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event that the replay went on with.

    Attributes:
        call: what the transaction asked for, if the specification gave the event from it; None
            where the event had to be believed.
    """

    block: int
    before: LedgerState
    event: Event
    call: Call | None
    transaction: bytes


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it.

    Attributes:
        known: whether seed, committee and model are those that the round opened with; false
            where the record of the round before is missing.
        before: the contract's state just before the round ended, bans included.
        commitments: all that the chain holds of the round, in its order.
        block: number of the block in which it ended.
    """

    round: int
    known: bool
    before: LedgerState
    commitments: tuple[MinedCommitment, ...]
    block: int
    decided: RoundDecided | None
    transaction: bytes

    @property
    def is_in_range(self) -> bool:
        """Say whether a decision's numbers are in range; a believed event may hold anything."""
        event, sizes = self.decided, self.before.deployment
        if event is None:
            return True
        ranked = [word_client(word) for word in event.ranking]
        clients = [*ranked, *event.accepted, *event.next_committee]
        return (
            all(0 <= word < INFINITY_BITS << 32 for word in event.ranking)
            and all(client < sizes.clients for client in clients)
            and all(word < other for word, other in pairwise(event.ranking))
            and len(set(ranked)) == len(ranked)
            and sizes.members <= len(ranked) <= sizes.trainers
        )
