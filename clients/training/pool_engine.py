"""An engine of worker processes on this machine.

A client is trained by one worker on one thread, so its update has the same bytes on any worker.
Workers write updates into shared memory, encode and hash them; the parent does next to nothing per
update.
Not safe to share between threads, except for `distances`.
"""

from __future__ import annotations

import signal
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from multiprocessing.connection import wait

from clients.devices import InstructionSet, capped, worker_devices
from clients.models.model import ParameterVector
from clients.training.evaluation import EvaluationBlock, blocks_of, totals_by_set
from clients.training.pool_process import (
    MEASURED,
    START,
    ArrayLocation,
    EncodedRow,
    EvaluateReply,
    EvaluateTask,
    FailureReply,
    Reply,
    SharedBytes,
    SharedState,
    SharedWorkload,
    StartReply,
    StartTask,
    Task,
    TrainReply,
    TrainTask,
    UpdateMatrix,
    work,
)
from clients.training.port import (
    Engine,
    Evaluation,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from clients.training.workload import JobQueue, Workload
from ledger.io.processes import Child, start_child
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import Distances

_EXIT_SECONDS = 5.0

_ENVIRONMENT = {
    # A worker frees and allocates the same large buffers at every step. They stay in the process:
    # the kernel would have to clear returned pages again.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
    # Huge pages, where available, save a fifth of the time for an LSTM.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # One thread each: the parallelism is that of the workers.
    "OMP_NUM_THREADS": "1",
}
"""A worker's environment, where the user has not set it."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerHandle:
    """A worker process and its unanswered tasks, oldest first."""

    child: Child
    tasks: deque[Task]

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.pid

    def hand(self, task: Task) -> None:
        """Send a task, to be done after all earlier ones."""
        self.tasks.append(task)
        # If the worker has ended, `answers` reports its last answer or its exit code.
        with suppress(OSError):
            self.child.connection.send(task)


class WorkerGroup:
    """Worker processes that live until `close`.

    Args:
        isa: cap of the instruction set under which they start; None for none.
    """

    def __init__(
        self, shared: SharedState, devices: Sequence[str], isa: InstructionSet | None = None
    ) -> None:
        self.workers: list[WorkerHandle] = []
        try:
            with capped(isa):
                for device in devices:
                    child = start_child(work, shared.on(device), environment=_ENVIRONMENT)
                    self.workers.append(WorkerHandle(child, deque([StartTask()])))
        except BaseException:
            self.close()
            raise

    def answers(self) -> Iterator[tuple[WorkerHandle, Task, Reply]]:
        """Wait for workers, and yield their answers, at least one."""
        by_connection = {worker.child.connection: worker for worker in self.workers}
        for ready in wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]  # only these were waited for
            try:
                reply = worker.child.connection.recv()
            except (EOFError, OSError) as error:
                raise TrainingError(_exit_message(worker)) from error
            if isinstance(reply, FailureReply):
                raise TrainingError(reply.sentence)
            yield worker, worker.tasks.popleft(), reply

    def close(self) -> None:
        """End the workers, whatever they are doing, and wait for them."""
        for worker in self.workers:
            worker.child.process.terminate()
        for worker in self.workers:
            worker.child.close(_EXIT_SECONDS)
        self.workers = []


def _exit_message(worker: WorkerHandle) -> str:
    code = worker.child.exit_code(_EXIT_SECONDS)
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code}"
    if code == -signal.SIGKILL:
        how += ", as the kernel does where memory runs out"
    return f"training worker {worker.pid} ended {how}, before its work was done"


_VECTORS = 2
_ITEM_BYTES = 4


class PoolEngine(Engine):
    """Trains and evaluates in worker processes that share this process's memory.

    Attributes:
        distances: counterpart of `plain_distances`, computed in this process.

    Args:
        rows: expected number of jobs per call; more cost another allocation.
        isa: cap of the instruction set under which the processes start; None for none.
    """

    def __init__(
        self,
        workload: Workload,
        workers: int,
        rows: int,
        distances: Distances,
        isa: InstructionSet | None = None,
    ) -> None:
        self.distances = distances
        self._isa = isa
        self._workload = workload
        dimension = workload.model.dimension
        self._shared = SharedState(
            workload=SharedWorkload.of(workload),
            parameters=SharedBytes(_VECTORS * dimension * _ITEM_BYTES),
            vectors=ArrayLocation(0, "<f4", (_VECTORS, dimension)),
            updates=UpdateMatrix(rows, dimension, workload.form),
        )
        self._chunk: int | None = None
        self._started = 0
        self._evaluation: RunningEvaluation | None = None
        self._group = WorkerGroup(self._shared, worker_devices(workload.device, workers), isa)
        if isa is not None:
            with self._closing_on_failure():
                while self._started < workers:
                    self._answers()

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of the workers; empty after they have ended."""
        return tuple(worker.pid for worker in self._group.workers)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        self._workload.require_jobs(start, jobs)
        with self._closing_on_failure():
            self._shared.updates.rows(len(jobs))
            self._shared.vector(START)[...] = start
            results = self._results(jobs)
        return [
            self._shared.updates.update(len(jobs), index, encoded, job.client, losses)
            for index, (job, (encoded, losses)) in enumerate(zip(jobs, results, strict=True))
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Start to evaluate a parameter vector; see `Engine.evaluate`."""
        self._workload.require_sets(vector, sets)
        with self._closing_on_failure():
            self._finish(self._evaluation)  # its vector is still being read
            self._shared.vector(MEASURED)[...] = vector
            sizes = [len(self._workload.sets[name].y) for name in sets]
            blocks, workers = blocks_of(sizes), self._group.workers
            self._evaluation = RunningEvaluation(self, len(sets), blocks)
            for worker, chosen in zip(workers, shares(blocks, len(workers)), strict=True):
                if chosen.start < chosen.stop:
                    worker.hand(EvaluateTask(tuple(sets), chosen))
        return PendingEvaluation(self._evaluation.result)

    def finish(self, evaluation: RunningEvaluation) -> None:
        """Wait for an evaluation of this engine."""
        with self._closing_on_failure():
            self._finish(evaluation)

    def close(self) -> None:
        """End the workers, whatever they are doing, and release the memory."""
        self._group.close()
        self._shared.close()

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """End the workers after an error: they might go on with their tasks."""
        if not self._group.workers:
            raise TrainingError("the engine is closed: its workers have ended")
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _results(self, jobs: Sequence[TrainingJob]) -> list[tuple[EncodedRow, bytes | None]]:
        """Let the workers train; return each update's payload in the matrix, and losses."""
        while self._chunk is None:
            self._answers()
        queue = JobQueue(self._workload.costs(jobs), len(self._group.workers), self._chunk)
        results: dict[int, tuple[EncodedRow, bytes | None]] = {}
        free = self._group.workers
        while len(results) < len(jobs):
            for worker in free:
                if taken := queue.take():
                    chosen = tuple(jobs[index] for index in taken)
                    worker.hand(TrainTask(len(jobs), tuple(taken), chosen))
            free = []
            for worker, task, trained in self._answers():
                pairs = zip(trained.rows, trained.losses, strict=True)
                results.update(zip(task.places, pairs, strict=True))
                free.append(worker)
        return [results[index] for index in range(len(jobs))]

    def _finish(self, evaluation: RunningEvaluation | None) -> None:
        while evaluation is not None and not evaluation.finished:
            self._answers()

    def _answers(self) -> list[tuple[WorkerHandle, TrainTask, TrainReply]]:
        """Wait for answers; return those to training, and process the others."""
        trained: list[tuple[WorkerHandle, TrainTask, TrainReply]] = []
        for worker, task, reply in self._group.answers():
            if isinstance(reply, StartReply):
                self._chunk = reply.chunk
                self._started += 1
                if self._isa is not None and reply.isa != self._isa:
                    raise ConfigurationError(
                        f"machine.isa = {self._isa}: this torch computes with {reply.isa} in a "
                        f"process that started under the cap: leave it out"
                    )
            elif isinstance(task, EvaluateTask) and isinstance(reply, EvaluateReply):
                assert self._evaluation is not None, "workers evaluate for a started evaluation"
                self._evaluation.add(task, reply)
            elif isinstance(task, TrainTask) and isinstance(reply, TrainReply):
                trained.append((worker, task, reply))
        return trained


class RunningEvaluation:
    """An evaluation whose blocks are with the workers.

    Attributes:
        finished: whether all of them have been evaluated.
    """

    def __init__(self, engine: PoolEngine, sets: int, blocks: Sequence[EvaluationBlock]) -> None:
        self._engine = engine
        self._sets = sets
        self._blocks = blocks
        self._parts: dict[int, Evaluation] = {}

    @property
    def finished(self) -> bool:
        """True if every block has been evaluated."""
        return len(self._parts) == len(self._blocks)

    def add(self, task: EvaluateTask, reply: EvaluateReply) -> None:
        self._parts.update(zip(range(len(self._blocks))[task.chosen], reply.parts, strict=True))

    def result(self) -> tuple[Evaluation, ...]:
        """Wait for the end, and return one evaluation per requested sample set, in order."""
        if not self.finished:
            self._engine.finish(self)
        return totals_by_set(
            self._sets, self._blocks, [self._parts[i] for i in range(len(self._blocks))]
        )


def shares(blocks: Sequence[EvaluationBlock], workers: int) -> list[slice]:
    """Return a slice of the blocks for each worker, with about the same number of samples.

    They are assigned in advance, as the parent distributes no work during an evaluation.
    """
    sizes = [block.rows.stop - block.rows.start for block in blocks]
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    bounds = [bisect_right(middles, sum(sizes) * i / workers) for i in range(1, workers)]
    return [slice(*pair) for pair in pairwise([0, *bounds, len(blocks)])]
