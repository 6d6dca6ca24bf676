"""An engine of worker processes on one machine, one core each.

A client is trained by one worker on one thread, so that its update is the same whoever takes it.
Workers write updates where the parent reads them, and hash them: what the parent does for an
update is next to nothing. Not for several threads at once, but for `distances`.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from clients.training.evaluation_blocks import blocks_of, totals_by_set
from clients.training.port import Engine, TrainedUpdate, TrainingError
from clients.training.scheduling import JobQueue
from clients.training.update_matrix import UpdateMatrix, payload_of
from clients.training.workers.shared_memory import ArrayLocation, SharedBytes
from clients.training.workers.worker_group import WorkerGroup
from clients.training.workers.worker_process import (
    MEASURED,
    START,
    EvaluateReply,
    EvaluateTask,
    SharedState,
    SharedWorkload,
    StartReply,
    TrainReply,
    TrainTask,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clients.models.model import ParameterVector
    from clients.training.evaluation_blocks import EvaluationBlock
    from clients.training.port import Evaluation, TrainingJob
    from clients.training.workers.worker_group import WorkerHandle
    from clients.training.workload import Workload
    from ledger.protocol.rules.distance.rule import Distances
    from ledger.protocol.types import Digest

_VECTORS = 2
_ITEM_BYTES = 4


class PoolEngine(Engine):
    """Does everything in workers, which share the memory of this process.

    Attributes:
        distances: twin of `plain_distances`, computed here.

    Args:
        workload: what it computes with.
        workers: how many.
        rows: most jobs of one call; more take memory once more.
        distances: computes all distances of a round.

    Raises:
        ValueError: samples that cannot be shared.
    """

    def __init__(self, workload: Workload, workers: int, rows: int, distances: Distances) -> None:
        self.distances = distances
        self._workload = workload
        dimension = workload.model.dimension
        self._shared = SharedState(
            workload=SharedWorkload.of(workload),
            parameters=SharedBytes(_VECTORS * dimension * _ITEM_BYTES),
            vectors=ArrayLocation(0, "<f4", (_VECTORS, dimension)),
            updates=UpdateMatrix(rows, dimension),
        )
        self._chunk: int | None = None
        self._begun: RunningEvaluation | None = None
        self._crew = WorkerGroup(self._shared, workers)

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of the workers; none after they have ended."""
        return tuple(worker.pid for worker in self._crew.workers)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; those of the call before are overwritten.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, no client twice.

        Raises:
            ValueError: a start of another length, an unknown or repeated client, or a seed that
                is not 32 bytes.
            TrainingError: a worker ended before its work was done, or the model failed.
        """
        self._workload.require_jobs(start, jobs)
        with self._closing_on_failure():
            rows = self._shared.updates.rows(len(jobs))
            self._shared.vector(START)[...] = start
            digests = self._digests(jobs)
        return [
            TrainedUpdate(job.client, payload_of(row, digest))
            for job, row, digest in zip(jobs, rows, digests, strict=True)
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> RunningEvaluation:
        """Begin to evaluate a parameter vector, beside whatever the caller does meanwhile.

        Args:
            vector: shape (d,).
            sets: names of sets of samples.

        Raises:
            ValueError: a vector of another length, or an unknown set.
            TrainingError: a worker ended before its work was done, or the model failed.
        """
        self._workload.require_sets(vector, sets)
        with self._closing_on_failure():
            self._finish(self._begun)  # of which the vector is still being read
            self._shared.vector(MEASURED)[...] = vector
            sizes = [len(self._workload.sets[name].y) for name in sets]
            cut, workers = blocks_of(sizes), self._crew.workers
            self._begun = RunningEvaluation(self, len(sets), cut)
            for worker, chosen in zip(workers, shares(cut, len(workers)), strict=True):
                if chosen.start < chosen.stop:
                    worker.hand(EvaluateTask(tuple(sets), chosen))
        return self._begun

    def finish(self, begun: RunningEvaluation) -> None:
        """Wait for an evaluation.

        Args:
            begun: by this engine.

        Raises:
            TrainingError: a worker ended before its work was done, or the model failed.
        """
        with self._closing_on_failure():
            self._finish(begun)

    def close(self) -> None:
        """End the workers, whatever they are doing, and give up the memory."""
        self._crew.close()
        self._shared.close()

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """End the workers if the caller is not told how their work ended: they may go on with it.

        Raises:
            TrainingError: there are none any more.
        """
        if not self._crew.workers:
            raise TrainingError("the engine is closed: its workers have ended")
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _digests(self, jobs: Sequence[TrainingJob]) -> list[Digest]:
        """Let the workers train; return the digest of each update."""
        while self._chunk is None:
            self._answers()
        left = JobQueue(self._workload.costs(jobs), len(self._crew.workers), self._chunk)
        digests: dict[int, Digest] = {}
        free = self._crew.workers
        while len(digests) < len(jobs):
            for worker in free:
                if taken := left.take():
                    chosen = tuple(jobs[place] for place in taken)
                    worker.hand(TrainTask(len(jobs), tuple(taken), chosen))
            free = []
            for worker, task, trained in self._answers():
                digests.update(zip(task.places, trained.digests, strict=True))
                free.append(worker)
        return [digests[place] for place in range(len(jobs))]

    def _finish(self, begun: RunningEvaluation | None) -> None:
        while begun is not None and not begun.finished:
            self._answers()

    def _answers(self) -> list[tuple[WorkerHandle, TrainTask, TrainReply]]:
        """Wait for answers; return those to training, and see to the others."""
        found: list[tuple[WorkerHandle, TrainTask, TrainReply]] = []
        for worker, task, reply in self._crew.answers():
            if isinstance(reply, StartReply):
                self._chunk = reply.chunk
            elif isinstance(task, EvaluateTask) and isinstance(reply, EvaluateReply):
                assert self._begun is not None, "workers evaluate what was begun"
                self._begun.add(task, reply)
            elif isinstance(task, TrainTask) and isinstance(reply, TrainReply):
                found.append((worker, task, reply))
        return found


class RunningEvaluation:
    """An evaluation whose blocks are with the workers.

    Attributes:
        finished: whether all of them have come back.

    Args:
        engine: whose workers.
        sets: how many sets of samples.
        cut: all their blocks.
    """

    def __init__(self, engine: PoolEngine, sets: int, cut: Sequence[EvaluationBlock]) -> None:
        self._engine = engine
        self._sets = sets
        self._cut = cut
        self._parts: dict[int, Evaluation] = {}

    @property
    def finished(self) -> bool:
        """Whether every block has been evaluated."""
        return len(self._parts) == len(self._cut)

    def add(self, task: EvaluateTask, reply: EvaluateReply) -> None:
        """Take what a worker has found.

        Args:
            task: what it was to do.
            reply: what it found.
        """
        self._parts.update(zip(range(len(self._cut))[task.chosen], reply.parts, strict=True))

    def result(self) -> tuple[Evaluation, ...]:
        """Wait for it; one part for each set of samples that was asked for, in that order.

        Raises:
            TrainingError: a worker ended before its work was done, or the model failed.
        """
        if not self.finished:
            self._engine.finish(self)
        return totals_by_set(self._sets, self._cut, [self._parts[i] for i in range(len(self._cut))])


def shares(cut: Sequence[EvaluationBlock], workers: int) -> list[slice]:
    """Return which blocks each worker evaluates: about as many samples as the others.

    They are shared out at once, since nobody watches over them while they are evaluated.

    Args:
        cut: all blocks.
        workers: how many.
    """
    sizes = [block.rows.stop - block.rows.start for block in cut]
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    cuts = [bisect_right(middles, sum(sizes) * i / workers) for i in range(1, workers)]
    return [slice(*pair) for pair in pairwise([0, *cuts, len(cut)])]
