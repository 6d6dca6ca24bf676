"""Ended rounds: their inputs out of the replay, and the check of a decided round's blobs.

A `RoundTask` and a `CheckedRound` are all that goes between processes. No blob is among them:
the checking process reads and hashes the blobs itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.audit.checks.all_checks import run_checks
from ledger.audit.checks.common import RECORD_UNREADABLE, ROUND_BEFORE_UNKNOWN
from ledger.audit.evidence import (
    Archive,
    ModelChain,
    ModelDigests,
    RoundEvidence,
    UnavailableBlob,
    read_accusations,
    read_round_evidence,
)
from ledger.audit.observations import (
    ClosedRound,
    DecidedRound,
    EndedRound,
    Observation,
    ReplayedRound,
    RunStart,
    Unavailable,
)
from ledger.audit.report import AuditStep, StepResult
from ledger.io.user_code import use_rules
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.inputs import (
    Inputs,
    Participants,
    RoundClosing,
    participants_of,
    round_closing,
    window_end,
)
from ledger.protocol.ledger_state import RoundDecided
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
    """The results of the ten checks of a decided round.

    Attributes:
        results: each with its step, in their order.
    """

    block: int
    results: tuple[tuple[AuditStep, StepResult], ...]
    missing: tuple[MissingPayload, ...]
    named: frozenset[Digest]
    blobs_read: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Milestone:
    """The end of a round in the replay.

    Attributes:
        is_confirmed: whether no log before the end of this round is missing.
    """

    done: int
    total: int
    is_confirmed: bool


class EvidenceReader:
    """Makes observations and tasks of replayed rounds."""

    def __init__(self, start: RunStart) -> None:
        self.ended = 0
        self._start = start
        self._models = ModelDigests()

    def observe(
        self, replayed: ReplayedRound, *, is_trusted: bool
    ) -> Iterator[Observation | RoundTask]:
        """Yield the end of a round, its inputs, and its decision as a task.

        Args:
            is_trusted: whether an earlier audit has checked its record and blobs.
        """
        self.ended += 1
        block, at = replayed.block, replayed.round
        yield EndedRound(block, replayed, self.ended)
        if not replayed.known:
            yield Unavailable(block, ROUND_BEFORE_UNKNOWN, at)
            return
        self._models.opened(at, replayed.before.model)
        if not replayed.is_in_range:
            return
        before = replayed.before
        participants = participants_of(
            before.deployment, before.registry, at, before.seed, before.committee
        )
        closed = ClosedRound(block, replayed, participants, _closing(replayed, participants))
        yield closed
        document, event = self._start.document, replayed.decided
        if document is None or event is None or is_trusted:
            return
        inputs = self._inputs(closed, document)
        yield RoundTask(block, inputs, event, before.model, self._models.before(inputs))

    def _inputs(self, closed: ClosedRound, document: RunDocument) -> Inputs:
        before = closed.replayed.before
        return Inputs(
            parameters=document.parameters,
            domain=self._start.domain,
            registry=before.registry,
            round=closed.replayed.round,
            seed=before.seed,
            participants=closed.participants,
            closing=closed.closing,
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
        archive = Archive(self._blobs)
        results: list[tuple[AuditStep, StepResult]] = []
        missing: list[MissingPayload] = []
        for observation in self._observe(task, archive):
            results += run_checks(observation)
            if isinstance(observation, DecidedRound):
                missing += _missing_payloads(task.block, observation.evidence)
        return CheckedRound(
            block=task.block,
            results=tuple(results),
            missing=tuple(missing),
            named=frozenset(archive.named),
            blobs_read=archive.blobs_read,
            bytes_read=archive.bytes_read,
        )

    def _observe(self, task: RoundTask, archive: Archive) -> Iterator[Observation]:
        event, models = task.event, self.models
        displacement = models.displacement_of(task.inputs, task.origin, archive)
        rules = use_rules(task.inputs.parameters, self._rules)
        evidence = read_round_evidence(
            task.inputs, event, archive, self._distances, displacement, rules
        )
        if evidence.record is None:
            yield Unavailable(task.block, RECORD_UNREADABLE, event.round)
        accusations = read_accusations(evidence, models.vector, archive)
        yield DecidedRound(task.block, evidence, models.follow(evidence, archive), accusations)


def _closing(replayed: ReplayedRound, participants: Participants) -> RoundClosing:
    """Return the end of a round's inputs, though the round may have ended before it."""
    before = replayed.before
    end = window_end(before.deployment, before.opened_block)
    closing = round_closing(end, participants.expected, end, replayed.commitments)
    assert closing is not None, "the window's end closes it"
    return closing


def _missing_payloads(block: int, evidence: RoundEvidence) -> Iterator[MissingPayload]:
    commitments = evidence.inputs.closing.commitments
    for dropout in evidence.record.dropouts if evidence.record is not None else ():
        is_missing = dropout.reason is DropoutReason.PAYLOAD_MISSING
        if is_missing and dropout.client in commitments:
            commitment = commitments[dropout.client]
            yield MissingPayload(block, evidence.event.round, dropout.client, commitment)
