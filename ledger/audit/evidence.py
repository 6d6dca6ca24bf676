"""Evidence that the checks judge: what the replay gave of a round, and what was published of it.

The incidents document is not signed: a missing or unproven one changes no outcome.
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

from ledger.audit.report import BlobKind, Contradiction, Fact
from ledger.chain.contract.codec import Call
from ledger.distances import fast_server_step
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
from ledger.protocol.judgement import Judgement, Ranking, counted_vectors, judge, rank_trainers
from ledger.protocol.ledger_state import (
    Deployment,
    Event,
    LedgerState,
    MinedCommitment,
    RoundDecided,
)
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import Distances, OwnRuleName, ServerStep, plain_distances
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


class BlobFailure(Enum):
    """Why a blob is not available."""

    MISSING = auto()
    UNREACHABLE = auto()
    DAMAGED = auto()
    TOO_LARGE = auto()


@dataclass(frozen=True, slots=True)
class UnavailableBlob:
    """A blob that is not available; `round` is None where it is the run's."""

    loss: BlobFailure
    kind: BlobKind
    digest: Digest
    round: int | None
    clients: tuple[ClientId, ...]
    detail: str


_DOCUMENTS = {BlobKind.CONFIGURATION, BlobKind.RECORD, BlobKind.INCIDENTS}
"""Kinds with a limit of their own; malformed payloads and long vectors are evidence too."""


class Archive:
    """A blob store as one audit, or one round of it, reads it; only sound blobs are counted."""

    def __init__(self, blobs: BlobReader) -> None:
        self.named: set[Digest] = set()
        self.lost: list[UnavailableBlob] = []  # as `find` met them
        self.blobs_read = 0
        self.bytes_read = 0
        self._blobs = blobs
        # A reader that hashes in this process has hashed what it returns.
        self._hashed: Callable[[Digest, int], Payload]
        self._hashed = getattr(blobs, "get_payload", None) or (
            lambda digest, limit: Payload.of(blobs.get(digest, limit))
        )

    def read(
        self, kind: BlobKind, digest: Digest, at: int | None, clients: tuple[ClientId, ...] = ()
    ) -> bytes | UnavailableBlob:
        """Return a blob that is hashed in this process, or why it is not available."""
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
        limit = MAX_DOCUMENT_BYTES if kind in _DOCUMENTS else MAX_BLOB_BYTES
        try:
            payload = self._hashed(digest, limit)
            data = bytes(payload.data)  # a copy only of what is not `bytes`
            if len(data) <= limit and payload.digest == digest:
                return data
            loss, detail = BlobFailure.DAMAGED, "the store gives other bytes"
        except BlobMissingError as error:
            loss, detail = BlobFailure.MISSING, str(error)
        except BlobUnreachableError as error:
            loss, detail = BlobFailure.UNREACHABLE, str(error)
        except BlobError as error:
            # A record that names a blob that is too large does not damage the store that holds it.
            loss = BlobFailure.TOO_LARGE if self._is_whole(digest, limit) else BlobFailure.DAMAGED
            detail = str(error)
        return UnavailableBlob(loss, kind, digest, at, clients, detail)

    def find(self, kind: BlobKind, digest: Digest, at: int, *clients: ClientId) -> bytes | None:
        """Return a blob of a round; None if it is not available, which `lost` then names."""
        data = self.read(kind, digest, at, clients)
        if not isinstance(data, UnavailableBlob):
            return data
        self.lost.append(data)
        return None

    def _is_whole(self, digest: Digest, limit: int) -> bool:
        try:
            return limit < MAX_BLOB_BYTES and sha256(self._blobs.get(digest)) == digest
        except BlobError:
            return False


def decoded(
    decode: Callable[[bytes], T], data: bytes | UnavailableBlob | None
) -> tuple[T | None, str]:
    """Return the value that bytes encode, or why they encode none; nothing without bytes."""
    if not isinstance(data, bytes):
        return None, ""
    try:
        return decode(data), ""
    except EncodingError as error:
        return None, str(error)


@dataclass(frozen=True)
class RoundEvidence:
    """A decided round with all that an auditor could read of it."""

    event: RoundDecided
    inputs: Inputs  # those that the chain closed for the round
    record: RoundRecord | None  # the basis of the decision; None if it cannot be read
    malformed: str  # why the record's blob is not a record; empty if it is one, or is not available
    # Blobs that are not available, of the record and of those that it names.
    lost: tuple[UnavailableBlob, ...]
    # Payloads and vectors that could be read, of those that the record names. The model among them
    # only supplies the dimension: step 9 knows the true one.
    blobs: Evidence
    distances: Distances = plain_distances
    rules: frozenset[str] = frozenset()  # names of own rules whose code the auditor has named
    step: ServerStep = field(default_factory=fast_server_step)

    @property
    def unknown_distance(self) -> OwnRuleName | None:
        name = self.inputs.parameters.distance
        return None if name in self.rules else OwnRuleName.of(name)

    @cached_property
    def updates(self) -> Mapping[ClientId, NDArray[np.float32]]:
        """Δ of each client whose update the record counts, as far as it is there and is one."""
        return {} if self.record is None else self.blobs.usable(self.record.clients)

    @cached_property
    def is_whole(self) -> bool:
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
        if self.record is None:
            return ()
        claims = validate_claims(self.inputs, self.record)
        return (*claims, *validate_updates(self.record, self.blobs), *self.score_violations)

    def contradictions(self, facts: Mapping[ViolationCode, Fact]) -> Iterator[Contradiction]:
        for violation in self.violations:
            if violation.code in facts:
                yield Contradiction(facts[violation.code], self.event.round, violation.clients)

    @cached_property
    def score_violations(self) -> tuple[Violation, ...]:
        record, table = self.record, self.table
        if record is None:
            return ()
        whole = table if self.is_whole else None
        violations = validate_scores(self.inputs, record, self.blobs, whole)
        if table is not None and not self.is_whole:
            violations += self._false_distances(record, table)
        return tuple(violations)

    def _false_distances(self, record: RoundRecord, table: DistanceTable) -> Iterator[Violation]:
        for vector in counted_vectors(record, self.blobs):
            if vector.clients != record.clients or not table.can_score(vector.member):
                continue
            for client, claim in vector.claims().items():
                if client in self.updates and table.is_off(
                    client, vector.member, claim, COUNTING_MARGINS
                ):
                    named, reason = (vector.member, client), RefusalReason.FALSE_DISTANCE
                    yield Violation(ViolationCode.SCORES_DO_NOT_COUNT, named, reason)
                    break

    @cached_property
    def ranking(self) -> Ranking | None:
        """Ranking of the counted vectors; None if they cannot be combined."""
        if self.record is None:
            return None
        counted = {signed.scores.member for signed in self.record.scores}
        if any(_prevents_ranking(doubt, counted) for doubt in self.score_violations):
            return None
        return rank_trainers(self.inputs.parameters, counted_vectors(self.record, self.blobs))


def _prevents_ranking(doubt: Violation, counted: Collection[ClientId]) -> bool:
    """Say whether vectors with such a violation cannot be combined; false ones still can."""
    match doubt.code:
        case ViolationCode.VECTOR_MISSING | ViolationCode.VECTOR_TOO_LONG:
            return doubt.clients[0] in counted
        case ViolationCode.SCORES_DO_NOT_COUNT:
            return doubt.reason is not RefusalReason.FALSE_DISTANCE
        case code:
            return code in {ViolationCode.TOO_FEW_SCORES, ViolationCode.TOO_FEW_TRAINERS}


def read_round_evidence(
    inputs: Inputs,
    event: RoundDecided,
    archive: Archive,
    distances: Distances,
    displacement: NDArray[np.float32] | None,
    rules: frozenset[str],
) -> RoundEvidence:
    """Return the evidence of a decided round, as far as it is available; see `RoundEvidence`."""
    data = archive.find(BlobKind.RECORD, event.record, event.round)
    record, malformed = decoded(decode_record, data)
    named = ({}, {}) if record is None else _read_named(record, archive, event.round)
    stand_in = np.broadcast_to(np.float32(0), inputs.parameters.dimension)
    form = inputs.parameters.payload_form
    evidence = Evidence(stand_in, *named, displacement=displacement, form=form)
    lost = tuple(archive.lost)
    return RoundEvidence(event, inputs, record, malformed, lost, evidence, distances, rules)


def _read_named(
    record: RoundRecord, archive: Archive, at: int, known: Evidence | None = None
) -> tuple[dict[ClientId, Payload], dict[Digest, bytes]]:
    """Return the payloads and vectors that a record names; the known ones are not read again."""
    payloads: dict[ClientId, Payload] = {}
    vectors: dict[Digest, bytes] = {}
    for client, digest in record.named_payloads().items():
        payload = None if known is None else known.payloads.get(client)
        if payload is not None and payload.digest == digest:
            payloads[client] = payload
        elif (data := archive.find(BlobKind.PAYLOAD, digest, at, client)) is not None:
            payloads[client] = Payload(data, digest)
    claims = (signed.scores for signed in record.claims_with_vectors)
    for digest, member in {scores.digest: scores.member for scores in claims}.items():
        before = None if known is None else known.vectors.get(digest)
        vector = before or archive.find(BlobKind.VECTOR, digest, at, member)
        if vector is not None:
            vectors[digest] = vector[: MAX_VECTOR_BYTES + 1]  # enough to see that it is longer
    return payloads, vectors


UNPROVEN = frozenset({IncidentKind.SILENT, IncidentKind.NO_QUORUM})  # they cannot be


@dataclass(frozen=True, slots=True)
class Accusations:
    """The accusations of a round's incidents document."""

    holding: tuple[Incident, ...]  # accusations that are proven, or that cannot be proven
    ignored: int  # number of the others
    lost: tuple[UnavailableBlob, ...]  # unavailable blobs that they name, including the document


def read_accusations(
    evidence: RoundEvidence, model: NDArray[np.float32] | None, archive: Archive
) -> Accusations:
    """Return which accusations of a round hold; an unusable document accuses no member."""
    event, data, before = evidence.event, None, len(archive.lost)
    if event.incidents != NO_DIGEST:
        data = archive.find(BlobKind.INCIDENTS, event.incidents, event.round)
    document, _ = decoded(decode_incidents, data)
    if document is None or (document.round, document.base) != (event.round, event.base):
        return Accusations((), 0, tuple(archive.lost[before:]))
    proposals = _Proposals(evidence, model, archive)
    holding = tuple(each for each in document.incidents if _holds(each, evidence, proposals))
    ignored = len(document.incidents) - len(holding)
    return Accusations(holding, ignored, tuple(archive.lost[before:]))


def _holds(incident: Incident, evidence: RoundEvidence, proposals: _Proposals) -> bool:
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


@dataclass
class _Proposals:
    """Judges the records of requests that did not become decisions, each record once."""

    _round: RoundEvidence
    _model: NDArray[np.float32] | None
    _archive: Archive
    _judged: dict[Digest, Judgement | bool] = field(default_factory=dict)

    def is_wrong(self, incident: Incident) -> bool:
        """Say whether a signed request contradicts the chain, its record or what follows."""
        vote, opening = incident.votes[0].vote, incident.opening
        if vote.kind is not VoteKind.REQUEST or opening is None:
            return False
        if aggregation_result(opening) != vote.result:
            return False
        if vote.base != self._round.inputs.closing.base:
            return True
        # Each member can be a primary once and more; more records only keep auditors busy.
        most = len(self._round.inputs.participants.committee)
        if opening.record not in self._judged and len(self._judged) < most:
            self._judged[opening.record] = self._judge(opening.record)
        judged = self._judged.get(opening.record, False)
        if isinstance(judged, bool):
            return judged
        # Without w_t everything except the next model can still be compared.
        true = judged.opening
        true = replace(true, model=opening.model) if self._model is None else true
        return true != opening or judged.set_digest(incident.phase) != vote.set_digest

    def _judge(self, digest: Digest) -> Judgement | bool:
        known, record, event = self._round.blobs, self._round.record, self._round.event
        if self._round.unknown_distance is not None:
            return False
        if digest != event.record or record is None:
            data = self._archive.find(BlobKind.RECORD, digest, event.round)
            record, _ = decoded(decode_record, data)
            if record is None:
                return data is not None
        named = _read_named(record, self._archive, event.round, known)
        model = known.model if self._model is None else self._model
        evidence = Evidence(model, *named, displacement=known.displacement, form=known.form)
        inputs, compute = self._round.inputs, (self._round.distances, self._round.step)
        judgement, violations = judge(inputs, record, evidence, *compute)
        if judgement is not None:
            return judgement
        # A violation that only names a missing blob proves nothing against a proposal.
        lacking = {ViolationCode.UPDATE_MISSING, ViolationCode.VECTOR_MISSING}
        lacking.add(ViolationCode.MODEL_UNKNOWN)
        if self._model is None:
            lacking.add(ViolationCode.MODEL_NOT_FINITE)
        return any(doubt.code not in lacking for doubt in violations)


@dataclass(frozen=True)
class ModelStep:
    """One recorded model, and the one that follows from what was before."""

    recorded: Digest  # digest of the model, as the chain names it
    lost: UnavailableBlob | None  # why its blob is not available; None if it is
    malformed: str  # why its blob is not a model; empty if it is one
    is_known_before: bool = True  # whether w_t is known
    lacking: tuple[ClientId, ...] = ()  # accepted clients whose update is not available
    # w_{t+1} from w_t and the accepted updates, with `digest`; None if one is missing.
    computed: NDArray[np.float32] | None = None
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run: its contract, configuration and first model."""

    block: int
    domain: Domain
    address: str  # of the contract, EIP-55
    recorded: Deployment
    document: RunDocument | None  # its configuration; None if the blob is `lost` or `malformed`
    deployment: Deployment  # what the configuration demands; without one, what the contract states
    lost: UnavailableBlob | None = None
    malformed: str = ""
    is_possible: bool = True  # whether a contract of this code can have such sizes
    code: str = ""  # what is wrong with the code on chain; empty if nothing is
    model: ModelStep | None = None


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event that the replay went on with; without a call, the event had to be believed."""

    block: int
    before: LedgerState
    event: Event
    call: Call | None
    transaction: bytes


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it."""

    round: int
    # Whether seed, committee and model are those that the round opened with; false where the record
    # of the round before is missing.
    known: bool
    before: LedgerState  # the contract's state just before the round ended, bans included
    commitments: tuple[MinedCommitment, ...]  # all that the chain holds of the round, in its order
    block: int  # number of the block in which it ended
    decided: RoundDecided | None
    transaction: bytes

    @property
    def is_in_range(self) -> bool:
        """Say whether a decision's numbers are in range; a believed event may hold anything."""
        event, sizes = self.decided, self.before.deployment
        if event is None:
            return True
        ranked = [*map(word_client, event.ranking)]
        clients = [*ranked, *event.accepted, *event.next_committee]
        return (
            all(0 <= word < INFINITY_BITS << 32 for word in event.ranking)
            and all(client < sizes.clients for client in clients)
            and all(word < other for word, other in pairwise(event.ranking))
            and len(set(ranked)) == len(ranked)
            and sizes.members <= len(ranked) <= sizes.trainers
        )
