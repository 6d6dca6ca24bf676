"""An engine of worker processes on this machine.

A client is trained by one worker on one thread, so its update has the same bytes on any worker.
Samples, parameters and updates are in memory shared with the parent; only tasks and digests go
through the pipe. Workers write updates, encode and hash them.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clients.datasets.federated_data import Samples
from clients.devices import InstructionSet, capped, isa_in_force, worker_devices
from clients.models.model import ParameterVector
from clients.training.jobs import (
    EvaluationBlock,
    JobQueue,
    JobRunner,
    as_training_error,
    blocks_of_sets,
    shares,
    totals_by_set,
)
from clients.training.port import (
    Engine,
    Evaluation,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
    Workload,
)
from clients.training.updates import ArrayLocation, EncodedRow, SharedBytes, UpdateMatrix, share
from ledger.io.processes import Child, follow_parent, start_child
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.protocol.rules.distance import Distances

START, MEASURED = 0, 1  # rows of the shared parameters: start of training, evaluated vector


@dataclass(frozen=True, slots=True)
class TrainTask:
    """Train some jobs of a call, which needs `rows` rows."""

    rows: int
    places: tuple[int, ...]
    jobs: tuple[TrainingJob, ...]


@dataclass(frozen=True, slots=True)
class EvaluateTask:
    """Evaluate some blocks of some sets."""

    sets: tuple[str, ...]
    chosen: slice


@dataclass(frozen=True, slots=True)
class StartTask:
    """Prepare for work: every worker's first task."""


Task = StartTask | TrainTask | EvaluateTask


@dataclass(frozen=True, slots=True)
class StartReply:
    """The worker is ready: its trainer prefers a chunk of clients, and computes with this set."""

    chunk: int
    isa: str


Reply = StartReply | list[EncodedRow] | list[Evaluation] | TrainingError
"""Answer to a task: rows in the order of its jobs, evaluations of its blocks, or its failure."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedState:
    """The workload of an engine with workers, and all memory that they share."""

    bare: Workload
    samples: SharedBytes
    places: tuple[ArrayLocation, ...]
    sets: tuple[str, ...]
    parameters: UpdateMatrix
    updates: UpdateMatrix

    @classmethod
    def of(cls, workload: Workload, rows: int) -> SharedState:
        """Copy the samples of an engine that usually has as many jobs as rows."""
        samples = [*workload.train, *workload.sets.values()]
        memory, places = share([array for part in samples for array in part])
        dimension = workload.model.dimension
        matrices = UpdateMatrix(2, dimension), UpdateMatrix(rows, dimension, workload.form)
        bare = replace(workload, train=(), sets={})
        return cls(bare, memory, tuple(places), tuple(workload.sets), *matrices)

    def workload(self) -> Workload:
        arrays = [self.samples.array(place) for place in self.places]
        for array in arrays:
            array.flags.writeable = False
        samples = [Samples(x, y) for x, y in zip(arrays[::2], arrays[1::2], strict=True)]
        clients = len(samples) - len(self.sets)
        sets = dict(zip(self.sets, samples[clients:], strict=True))
        return replace(self.bare, train=tuple(samples[:clients]), sets=sets)

    def vector(self, which: int) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.parameters.rows(2)[which]
        return vector

    def close(self) -> None:
        self.parameters.close()
        self.updates.close()


def work(shared: SharedState, connection: Connection[Reply, Task]) -> None:
    """Do tasks until the parent closes the pipe or ends."""
    follow_parent()
    torch.set_num_threads(1)
    runner = TaskRunner(shared)
    task: Task = StartTask()
    while True:
        connection.send(runner.reply(task))
        try:
            task = connection.recv()
        except EOFError:
            return


class TaskRunner:
    """State of a worker between tasks."""

    _runner: JobRunner

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def reply(self, task: Task) -> Reply:
        try:
            with as_training_error():
                return self._done(task)
        except CmflError as error:
            return TrainingError(str(error))

    def _done(self, task: Task) -> Reply:
        shared = self._shared
        match task:
            case StartTask():
                self._runner = JobRunner(shared.workload(), shared.updates)
                return StartReply(self._runner.chunk, isa_in_force())
            case TrainTask(rows, places, jobs):
                # On the processor the other cores are the other workers'.
                is_on_card = shared.bare.device != "cpu"
                start = shared.vector(START)
                return self._runner.train(start, jobs, rows, places, hashes_meanwhile=is_on_card)
            case EvaluateTask(sets, chosen):
                return self._runner.evaluator.parts(shared.vector(MEASURED), sets, chosen)


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

    def hand(self, task: Task) -> None:
        self.tasks.append(task)
        # If the worker has ended, `_answers` reports its last answer or its exit code.
        with suppress(OSError):
            self.child.connection.send(task)


def _exit_message(worker: WorkerHandle) -> str:
    code = worker.child.exit_code(_EXIT_SECONDS)
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code}"
    if code == -signal.SIGKILL:
        how += ", as the kernel does where memory runs out"
    return f"training worker {worker.child.pid} ended {how}, before its work was done"


class PoolEngine(Engine):
    """An engine of worker processes; only its `distances` may be shared between threads."""

    def __init__(
        self,
        workload: Workload,
        workers: int,
        rows: int,
        distances: Distances,
        isa: InstructionSet | None = None,
    ) -> None:
        self.distances, self._isa, self._workload = distances, isa, workload
        self._shared = SharedState.of(workload, rows)
        self._chunk: int | None = None
        self._started = 0
        self._evaluation: RunningEvaluation | None = None
        self._workers: list[WorkerHandle] = []
        try:
            with capped(isa):
                for device in worker_devices(workload.device, workers):
                    own = replace(self._shared, bare=replace(self._shared.bare, device=device))
                    child = start_child(work, own, environment=_ENVIRONMENT)
                    self._workers.append(WorkerHandle(child, deque([StartTask()])))
            while isa is not None and self._started < workers:
                self._answers()
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of the workers; empty after they have ended."""
        return tuple(worker.child.pid for worker in self._workers)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        self._workload.require_jobs(start, jobs)
        results: dict[int, EncodedRow] = {}
        with self._closing_on_failure():
            self._shared.updates.rows(len(jobs))
            self._shared.vector(START)[...] = start
            while self._chunk is None:
                self._answers()
            queue = JobQueue(self._workload.costs(jobs), len(self._workers), self._chunk)
            free = self._workers
            while len(results) < len(jobs):
                for worker in free:
                    if taken := queue.take():
                        chosen = tuple(jobs[index] for index in taken)
                        worker.hand(TrainTask(len(jobs), tuple(taken), chosen))
                free = []
                for worker, task, rows in self._answers():
                    results.update(zip(task.places, rows, strict=True))
                    free.append(worker)
        return self._shared.updates.updates(jobs, [results[index] for index in range(len(jobs))])

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        self._workload.require_sets(vector, sets)
        with self._closing_on_failure():
            if self._evaluation is not None:
                self._finish(self._evaluation)  # its vector is still being read
            self._shared.vector(MEASURED)[...] = vector
            blocks = blocks_of_sets(self._workload, sets)
            evaluation = self._evaluation = RunningEvaluation(len(sets), blocks)
            parts = shares(blocks, len(self._workers))
            for worker, chosen in zip(self._workers, parts, strict=True):
                if chosen.start < chosen.stop:
                    worker.hand(EvaluateTask(tuple(sets), chosen))

        def result() -> tuple[Evaluation, ...]:
            if not evaluation.is_finished:
                with self._closing_on_failure():
                    self._finish(evaluation)
            return evaluation.totals()

        return result

    def close(self) -> None:
        for worker in self._workers:
            worker.child.process.terminate()
        for worker in self._workers:
            worker.child.close(_EXIT_SECONDS)
        self._workers = []
        self._shared.close()

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """End the workers after an error: they might go on with their tasks."""
        if not self._workers:
            raise TrainingError("the engine is closed, and its workers have ended")
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _finish(self, evaluation: RunningEvaluation) -> None:
        while not evaluation.is_finished:
            self._answers()

    def _answers(self) -> list[tuple[WorkerHandle, TrainTask, Any]]:
        trained: list[tuple[WorkerHandle, TrainTask, Any]] = []
        by_connection = {worker.child.connection: worker for worker in self._workers}
        for ready in wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]  # only these were waited for
            try:
                reply = worker.child.connection.recv()
            except (EOFError, OSError) as error:
                raise TrainingError(_exit_message(worker)) from error
            task = worker.tasks.popleft()
            if isinstance(reply, TrainingError):
                raise reply
            if isinstance(reply, StartReply):
                self._chunk = reply.chunk
                self._started += 1
                if self._isa is not None and reply.isa != self._isa:
                    raise ConfigurationError(
                        f"machine.isa = {self._isa}: this torch uses {reply.isa} in spite of "
                        "the limit; remove the setting"
                    )
            elif isinstance(task, EvaluateTask):
                assert self._evaluation is not None, "workers evaluate for a started evaluation"
                self._evaluation.add(task.chosen, reply)
            elif isinstance(task, TrainTask):
                trained.append((worker, task, reply))
        return trained


class RunningEvaluation:
    """An evaluation whose blocks are with the workers."""

    def __init__(self, sets: int, blocks: Sequence[EvaluationBlock]) -> None:
        self._sets, self._blocks = sets, blocks
        self._parts: dict[int, Evaluation] = {}

    @property
    def is_finished(self) -> bool:
        return len(self._parts) == len(self._blocks)

    def add(self, chosen: slice, parts: Sequence[Evaluation]) -> None:
        self._parts.update(zip(range(len(self._blocks))[chosen], parts, strict=True))

    def totals(self) -> tuple[Evaluation, ...]:
        parts = [self._parts[index] for index in range(len(self._blocks))]
        return totals_by_set(self._sets, self._blocks, parts)
