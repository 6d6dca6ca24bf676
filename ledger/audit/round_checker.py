"""Ended rounds: their inputs out of the replay, and the check of a decided round's blobs.

A `RoundTask` and a `CheckedRound` are all that goes between processes. No blob is among them:
the checking process reads and hashes the blobs itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ledger.audit.checks.chain import check_sampling
from ledger.audit.checks.common import (
    RECORD_UNREADABLE,
    ROUND_BEFORE_UNKNOWN,
    CheckResult,
    not_served,
    results_of,
)
from ledger.audit.checks.completeness import check_commitments, check_order, check_record
from ledger.audit.checks.decision import check_accusations, check_base, check_ranking, check_sets
from ledger.audit.checks.published import check_blobs, check_distances, check_means, check_model
from ledger.audit.evidence import (
    Accusations,
    Archive,
    ModelStep,
    ReplayedRound,
    RoundEvidence,
    RunStart,
    UnavailableBlob,
    decoded,
    read_accusations,
    read_round_evidence,
)
from ledger.audit.report import AuditStep, BlobKind
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import sha256, vector_from_bytes, vector_view
from ledger.protocol.inputs import (
    Inputs,
    participants_of,
    round_closing,
    window_end,
)
from ledger.protocol.judgement import next_model
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import Distances
from ledger.protocol.types import ClientId, Digest, DropoutReason
from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A decided round whose record and blobs are to be checked.

    Attributes:
        inputs: those that the chain closed for it.
        model: digest of w_t, which it began with.
        origin: digest of w_s, where the displacement of its distances begins; None without one,
            or if it is not known.
    """

    block: int
    inputs: Inputs
    event: RoundDecided
    model: Digest
    origin: Digest | None


@dataclass(frozen=True, slots=True)
class MissingPayload:
    """A payload that a round's record calls missing."""

    block: int
    round: int
    client: ClientId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class CheckedRound:
    """The results of the checks of a decided round, in the order of their steps."""

    results: tuple[CheckResult, ...]
    missing: tuple[MissingPayload, ...]
    named: frozenset[Digest]
    blobs_read: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Milestone:
    """The end of a round in the replay; confirmed if no log before it is missing."""

    done: int
    total: int
    is_confirmed: bool


class EvidenceReader:
    """Checks what the replay gave of each round, and makes tasks of the decided ones."""

    def __init__(self, start: RunStart) -> None:
        self.ended = 0
        self._start = start
        self._began: dict[int, Digest] = {}

    def read(
        self, replayed: ReplayedRound, *, is_trusted: bool
    ) -> Iterator[CheckResult | RoundTask]:
        """Yield the results of a round's end and its inputs, and its decision as a task.

        Args:
            is_trusted: whether an earlier audit has checked its record and blobs.
        """
        self.ended += 1
        block, at, before = replayed.block, replayed.round, replayed.before
        sets = check_sets(replayed) if replayed.known else ()
        order = check_order(replayed, self.ended)
        yield from results_of(block, (AuditStep.RANKING, sets), (AuditStep.COMPLETENESS, order))
        if not replayed.known:
            yield from not_served(block, ROUND_BEFORE_UNKNOWN, at)
            return
        self._began[at] = before.model
        if not replayed.is_in_range:
            return
        participants = participants_of(
            before.deployment, before.registry, at, before.seed, before.committee
        )
        # The inputs end with the window, though the round may have ended before it.
        end = window_end(before.deployment, before.opened_block)
        closing = round_closing(end, participants.expected, end, replayed.commitments)
        assert closing is not None, "the window's end closes it"
        event, document = replayed.decided, self._start.document
        if event is not None:
            base = check_base(event, block, closing)
            sampling = check_sampling(event, participants.trainers)
            checks = (AuditStep.CERTIFICATES, base), (AuditStep.SAMPLING, sampling)
            yield from results_of(block, *checks)
        commitments = check_commitments(replayed, participants, closing)
        yield from results_of(block, (AuditStep.COMPLETENESS, commitments))
        if document is None or event is None or is_trusted:
            return
        inputs = Inputs(
            parameters=document.parameters,
            layout=document.layout,
            domain=self._start.domain,
            registry=before.registry,
            round=at,
            seed=before.seed,
            participants=participants,
            closing=closing,
        )
        yield RoundTask(block, inputs, event, before.model, self._origin(inputs))

    def _origin(self, inputs: Inputs) -> Digest | None:
        """Return the digest of w_s, where a round's displacement begins; None if it has none."""
        needs = inputs.needs_displacement
        first = window_start(inputs.round) if needs else inputs.round
        self._began = {at: digest for at, digest in self._began.items() if at >= first}
        return self._began.get(first) if needs else None


def check_decided(
    block: int, evidence: RoundEvidence, model: ModelStep, accusations: Accusations
) -> Iterator[CheckResult]:
    """Yield the results of all that was published of a decided round."""
    yield from results_of(
        block,
        (AuditStep.CERTIFICATES, check_accusations(evidence, accusations)),
        (AuditStep.BLOBS, check_blobs(evidence, model, accusations)),
        (AuditStep.DISTANCES, check_distances(evidence)),
        (AuditStep.MEANS, check_means(evidence)),
        (AuditStep.RANKING, check_ranking(evidence)),
        (AuditStep.MODEL, check_model(model, evidence.event.round)),
        (AuditStep.COMPLETENESS, check_record(evidence, accusations)),
    )


class RoundChecker:
    """Checks rounds one after the other; holds the blobs of one, and the newest model."""

    def __init__(
        self,
        blobs: BlobReader,
        distances: Distances,
        models: ModelChain | None = None,
        rules: tuple[str, ...] = (),
    ) -> None:
        """Take what rounds are checked with.

        Args:
            models: the model that the next round begins with, if it is known.
            rules: files or packages of own rules that the auditor names.
        """
        self.models = ModelChain() if models is None else models
        self._blobs = blobs
        self._distances = distances
        self._rules = rules

    def start_from(self, task: RoundTask) -> UnavailableBlob | None:
        """Read the model that a round begins with; return why it is unavailable, if it is."""
        dimension = task.inputs.parameters.dimension
        return self.models.start_from(task.model, dimension, Archive(self._blobs))

    def check(self, task: RoundTask) -> CheckedRound:
        """Return the results of a round's record and blobs, and go on to its model."""
        self.start_from(task)
        archive, event, models = Archive(self._blobs), task.event, self.models
        displacement = models.displacement_of(task.inputs, task.origin, archive)
        rules = use_rules(task.inputs.parameters, self._rules)
        evidence = read_round_evidence(
            task.inputs, event, archive, self._distances, displacement, rules
        )
        is_read = evidence.record is not None
        unread = () if is_read else not_served(task.block, RECORD_UNREADABLE, event.round)
        accusations = read_accusations(evidence, models.vector, archive)
        model = models.follow(evidence, archive)
        return CheckedRound(
            results=(*unread, *check_decided(task.block, evidence, model, accusations)),
            missing=tuple(_missing_payloads(task.block, evidence)),
            named=frozenset(archive.named),
            blobs_read=archive.blobs_read,
            bytes_read=archive.bytes_read,
        )


def _missing_payloads(block: int, evidence: RoundEvidence) -> Iterator[MissingPayload]:
    commitments = evidence.inputs.closing.commitments
    for dropout in evidence.record.dropouts if evidence.record is not None else ():
        is_missing = dropout.reason is DropoutReason.PAYLOAD_MISSING
        if is_missing and dropout.client in commitments:
            commitment = commitments[dropout.client]
            yield MissingPayload(block, evidence.event.round, dropout.client, commitment)


class ModelChain:
    """The newest global model; `vector` is None if it could neither be read nor recomputed."""

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

        Returns:
            Why its blob is not to be had, if it had to be read and is not; said of another round.
        """
        if digest == self._digest:
            return None
        self._digest, self.vector = digest, None
        data = archive.read_again(BlobKind.MODEL, digest, None)
        if isinstance(data, UnavailableBlob):
            return data
        self.vector, _ = _model(data, dimension)
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
        vector, _ = _model(data, len(self.vector))
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
            self.vector, malformed = _model(data, dimension)
            return None, malformed
        return None, ""


def _entering(evidence: RoundEvidence) -> Sequence[ClientId]:
    if evidence.inputs.parameters.compares_directions and evidence.record is not None:
        return evidence.record.clients  # all lengths determine how far an update is clipped
    return evidence.event.accepted


def _model(data: bytes, dimension: int) -> tuple[NDArray[np.float32] | None, str]:
    return decoded(partial(vector_from_bytes, dimension=dimension), data)
