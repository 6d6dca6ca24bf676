"""Ended rounds: their inputs out of the replay, and the check of a decided round's blobs.

Processes check rounds while this one replays the chain; their results come in order. Only
`RoundTask` and `CheckedRound` go between them. A worker gets some rounds in a row, and reads their
blobs and the model that the first of them begins with. If that model is not available, this process
may still know it: it checks those rounds itself, from the rounds before them on, so that the report
is the same byte for byte. It also checks the first rounds: a short run starts no other process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.audit.checks import chain, rounds
from ledger.audit.evidence import (
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
from ledger.audit.report import AuditStep, BlobKind, CheckResult, not_served, results_of
from ledger.distances import fast_distances
from ledger.io.processes import worker_pool
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import sha256, vector_from_bytes, vector_view
from ledger.protocol.inputs import Inputs, participants_of, round_closing, window_end
from ledger.protocol.judgement import next_model
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import Distances
from ledger.protocol.types import ClientId, Digest, DropoutReason
from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A decided round whose record and blobs are to be checked."""

    block: int
    inputs: Inputs  # those that the chain closed for it
    event: RoundDecided
    model: Digest  # digest of w_t, which it began with
    # Digest of w_s, where the displacement of its distances begins; None without one, or if it is
    # not known.
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


@dataclass
class EvidenceReader:
    """Checks what the replay gave of each round, and makes tasks of the decided ones."""

    start: RunStart
    ended: int = 0
    _began: dict[int, Digest] = field(default_factory=dict)  # models by the round they began

    def read(
        self, replayed: ReplayedRound, *, is_trusted: bool = False
    ) -> list[CheckResult | RoundTask]:
        """Return a round's results, and its decision as a task unless an audit of it is trusted."""
        self.ended += 1
        block, at, before = replayed.block, replayed.round, replayed.before
        sets = rounds.check_sets(replayed) if replayed.known else ()
        order = rounds.check_order(replayed, self.ended)
        checks = (AuditStep.RANKING, sets), (AuditStep.COMPLETENESS, order)
        found: list[CheckResult | RoundTask] = [*results_of(block, *checks)]
        if not replayed.known:
            return [*found, *not_served(block, chain.ROUND_BEFORE_UNKNOWN, at)]
        self._began[at] = before.model
        if not replayed.is_in_range:
            return found
        sizes, registry = before.deployment, before.registry
        participants = participants_of(sizes, registry, at, before.seed, before.committee)
        # The inputs end with the window, though the round may have ended before it.
        end = window_end(sizes, before.opened_block)
        closing = round_closing(end, participants.expected, end, replayed.commitments)
        assert closing is not None, "the window's end closes it"
        event, document = replayed.decided, self.start.document
        if event is not None:
            base = rounds.check_base(event, block, closing)
            sampling = chain.check_sampling(event, participants.trainers)
            decided = (AuditStep.CERTIFICATES, base), (AuditStep.SAMPLING, sampling)
            found += results_of(block, *decided)
        commitments = rounds.check_commitments(replayed, participants, closing)
        found += results_of(block, (AuditStep.COMPLETENESS, commitments))
        if document is not None and event is not None and not is_trusted:
            identity = document.parameters, self.start.domain, registry, at
            inputs = Inputs(*identity, before.seed, participants, closing)
            needs = inputs.needs_displacement
            first = window_start(at) if needs else at
            self._began = {t: digest for t, digest in self._began.items() if t >= first}
            origin = self._began.get(first) if needs else None
            found.append(RoundTask(block, inputs, event, before.model, origin))
        return found


@dataclass
class ModelChain:
    """The newest global model; `vector` is None if it could neither be read nor recomputed."""

    vector: NDArray[np.float32] | None = None
    _digest: Digest | None = None

    def begin(self, digest: Digest, dimension: int, archive: Archive) -> ModelStep:
        return ModelStep(digest, *self._read(digest, dimension, None, archive))

    def start_from(self, digest: Digest, dimension: int, archive: Archive) -> bool:
        """Read the model that a round starts from; return False if its blob is not available."""
        if digest == self._digest:
            return True
        data = archive.read_again(BlobKind.MODEL, digest, None)
        self._digest, (self.vector, _) = digest, _model(data, dimension)
        return not isinstance(data, UnavailableBlob)

    def displacement_of(
        self, inputs: Inputs, before: Digest | None, archive: Archive
    ) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,), from w_s's digest; None if unknown or not needed."""
        if not inputs.needs_displacement or before is None or self.vector is None:
            return None
        data = archive.read_again(BlobKind.MODEL, before, inputs.round)
        vector, _ = _model(data, len(self.vector))  # its own round reports one that is missing
        return None if vector is None else displacement(vector, self.vector)

    def follow(self, evidence: RoundEvidence, archive: Archive) -> ModelStep:
        """Return w_{t+1} as it is recorded and as it follows, and go on from there."""
        event, before, inputs = evidence.event, self.vector, evidence.inputs
        entering = event.accepted
        if inputs.parameters.compares_directions and evidence.record is not None:
            entering = evidence.record.clients  # all lengths determine how an update is clipped
        lacking = tuple(client for client in entering if client not in evidence.updates)
        computed = digest = None
        if before is not None and event.accepted and not lacking:
            computed = next_model(inputs, before, event.accepted, evidence.updates, evidence.step)
            digest = sha256(vector_view(computed))
        if event.model != self._digest:
            self.vector = computed if digest == event.model else None
        dimension = inputs.parameters.dimension
        blob = self._read(event.model, dimension, event.round, archive)
        return ModelStep(event.model, *blob, before is not None, lacking, computed, digest)

    def _read(
        self, digest: Digest, dimension: int, at: int | None, archive: Archive
    ) -> tuple[UnavailableBlob | None, str]:
        """Read a model, and go on from it unless it was recomputed; return why it is not one."""
        self._digest, malformed = digest, ""
        data = archive.read(BlobKind.MODEL, digest, at)
        if isinstance(data, UnavailableBlob):
            return data, ""
        if self.vector is None:
            self.vector, malformed = _model(data, dimension)
        return None, malformed


def _model(data: bytes | UnavailableBlob, dimension: int) -> tuple[NDArray[np.float32] | None, str]:
    return decoded(partial(vector_from_bytes, dimension=dimension), data)


@dataclass
class RoundChecker:
    """Checks rounds one after the other; holds the blobs of one, and the newest model."""

    blobs: BlobReader
    distances: Distances
    models: ModelChain = field(default_factory=ModelChain)  # which the next round begins with
    rules: tuple[str, ...] = ()  # files or packages of own rules that the auditor names

    def start_from(self, task: RoundTask) -> bool:
        """Read the model that a round begins with; return whether its blob is available."""
        dimension = task.inputs.parameters.dimension
        return self.models.start_from(task.model, dimension, Archive(self.blobs))

    def checked(self, items: Iterator[ReadItem]) -> Iterator[CheckedItem]:
        for item in items:
            yield self.check(item) if isinstance(item, RoundTask) else item

    def check(self, task: RoundTask) -> CheckedRound:
        """Return the results of a round's record and blobs, and go on to its model."""
        self.start_from(task)
        archive, event, models, block = Archive(self.blobs), task.event, self.models, task.block
        displacement = models.displacement_of(task.inputs, task.origin, archive)
        rules = use_rules(task.inputs.parameters, self.rules)
        evidence = read_round_evidence(
            task.inputs, event, archive, self.distances, displacement, rules
        )
        record, commitments = evidence.record, task.inputs.closing.commitments
        unread = not_served(block, chain.RECORD_UNREADABLE, event.round) if record is None else ()
        accusations = read_accusations(evidence, models.vector, archive)
        model = models.follow(evidence, archive)
        results = results_of(
            block,
            (AuditStep.CERTIFICATES, rounds.check_accusations(evidence, accusations)),
            (AuditStep.BLOBS, rounds.check_blobs(evidence, model, accusations)),
            (AuditStep.DISTANCES, rounds.check_distances(evidence)),
            (AuditStep.MEANS, rounds.check_means(evidence)),
            (AuditStep.RANKING, rounds.check_ranking(evidence)),
            (AuditStep.MODEL, rounds.check_model(model, event.round)),
            (AuditStep.COMPLETENESS, rounds.check_record(evidence, accusations)),
        )
        missing = (
            MissingPayload(block, event.round, dropout.client, commitments[dropout.client])
            for dropout in (() if record is None else record.dropouts)
            if dropout.reason is DropoutReason.PAYLOAD_MISSING and dropout.client in commitments
        )
        read = archive.blobs_read, archive.bytes_read
        return CheckedRound((*unread, *results), tuple(missing), frozenset(archive.named), *read)


ROUND_BYTES = 3_000_000  # cost of the rest of a round, as so many bytes of blobs
ROUNDS_PER_BATCH = 4  # rounds in a row that a process is given
MAX_WAITING_BATCHES = 3  # of each process, started and not yet taken: no more are replayed ahead
WORKER_START_BYTES = 500_000_000  # of blobs, which take as long to check as processes to start
ReadItem: TypeAlias = CheckResult | RoundTask | Milestone
CheckedItem: TypeAlias = CheckResult | CheckedRound | Milestone


@dataclass(frozen=True, slots=True)
class AuditWorkers:
    """Processes that check rounds while this one replays the chain; each holds a round's blobs."""

    processes: int  # at least 1
    # Opens the blobs in such a process; a `functools.partial` of a class or a module's function.
    blobs: Callable[[], BlobReader]
    start_after_bytes: int = WORKER_START_BYTES  # checked here before the first starts


@dataclass
class _Batch:
    items: list[ReadItem] = field(default_factory=list)
    future: Future[list[CheckedRound] | None] | None = None

    @property
    def tasks(self) -> list[RoundTask]:
        return [item for item in self.items if isinstance(item, RoundTask)]


@contextmanager
def parallel_checks(
    workers: AuditWorkers,
    distances: Distances | None,
    rules: tuple[str, ...],
    fresh: Callable[..., RoundChecker],
    models: ModelChain,
) -> Iterator[Callable[[Iterator[ReadItem]], Iterator[CheckedItem]]]:
    """Open processes, and yield a function that checks rounds; `fresh` checks what they cannot."""
    with worker_pool(workers.processes, _Worker.begin, (workers.blobs, distances, rules)) as pool:
        yield _InOrder(pool, workers, fresh, fresh(models), workers.start_after_bytes).checked


@dataclass
class _InOrder:
    """Gives decided rounds to processes, and yields everything in the order of reading."""

    pool: ProcessPoolExecutor
    workers: AuditWorkers
    fresh: Callable[..., RoundChecker]
    here: RoundChecker
    left_here: int  # bytes of blobs to check in this process before the others start
    before: list[RoundTask] = field(default_factory=list)  # the rounds that were checked last
    is_here: bool = True  # whether they were checked in this process
    filling: _Batch = field(default_factory=_Batch)
    running: deque[_Batch] = field(default_factory=deque)

    def checked(self, seen: Iterator[ReadItem]) -> Iterator[CheckedItem]:
        for item in seen:
            if self.left_here > 0:
                if isinstance(item, RoundTask):
                    found = self.here.check(item)
                    self.left_here -= found.bytes_read + ROUND_BYTES
                    self.before = [item]
                    yield found
                else:
                    yield item
                continue
            self.filling.items.append(item)
            if len(self.filling.tasks) == ROUNDS_PER_BATCH:
                self._submit()
            yield from self._ready(MAX_WAITING_BATCHES * self.workers.processes)
        self._submit()
        yield from self._ready(0)

    def _submit(self) -> None:
        batch, self.filling = self.filling, _Batch()
        if batch.tasks:
            batch.future = self.pool.submit(_Worker.check, batch.tasks)
        self.running.append(batch)

    def _ready(self, most: int) -> Iterator[CheckedItem]:
        """Yield finished batches from the front; wait for it while more than `most` are running."""
        while self.running:
            future = self.running[0].future
            if future is not None and not future.done() and len(self.running) <= most:
                return
            batch = self.running.popleft()
            found = iter(self._found(batch))
            for item in batch.items:
                yield next(found) if isinstance(item, RoundTask) else item

    def _found(self, batch: _Batch) -> list[CheckedRound]:
        """Return a batch's results; check it here if only this process can know its first model."""
        found = [] if batch.future is None else batch.future.result()
        is_here = found is None
        if found is None:
            if not self.is_here:
                self.here = self.fresh()
                for task in self.before:
                    self.here.check(task)
            found = [self.here.check(task) for task in batch.tasks]
        self.before, self.is_here = batch.tasks, is_here
        return found


class _Worker:
    fresh: ClassVar[Callable[[], RoundChecker]]

    @classmethod
    def begin(
        cls, blobs: Callable[[], BlobReader], distances: Distances | None, rules: tuple[str, ...]
    ) -> None:
        cls.fresh = partial(RoundChecker, blobs(), distances or fast_distances(1), rules=rules)

    @classmethod
    def check(cls, tasks: list[RoundTask]) -> list[CheckedRound] | None:
        """Return the results of rounds in a row; None if the first one's model is not available."""
        checker = cls.fresh()
        return [checker.check(task) for task in tasks] if checker.start_from(tasks[0]) else None
