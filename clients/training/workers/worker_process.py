"""A worker process: it takes tasks from a pipe, and answers each with a short reply.

Samples, parameters and updates are in memory shared with the parent; only tasks and digests go
through the pipe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clients.datasets.federated_data import Samples
from clients.training.environment import isa_in_force
from clients.training.evaluation import Evaluator
from clients.training.port import Evaluation, TrainingJob, UpdateTrainer
from clients.training.row_payloads import RowPayloads, hashing_threads
from clients.training.workers.shared_memory import (
    ArrayLocation,
    EncodedRow,
    SharedBytes,
    UpdateMatrix,
    share,
)
from clients.training.workload import Workload, as_training_error, losses_of
from ledger.io.processes import follow_parent
from ledger.protocol.errors import CmflError

START, MEASURED = 0, 1
"""Rows of the shared parameters: the start of training, and the evaluated vector."""


@dataclass(frozen=True, slots=True)
class TrainTask:
    """Train some jobs of a call.

    Attributes:
        rows: number of rows that the call needs.
    """

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
    """The worker is ready.

    Attributes:
        chunk: number of clients that its trainer prefers to take at once.
        isa: instruction set with which it computes, as an environment class names it.
    """

    chunk: int
    isa: str


@dataclass(frozen=True, slots=True)
class TrainReply:
    """The updates are in the shared matrix.

    Attributes:
        rows: payloads of the written rows, in the order of the task's jobs.
        losses: of the same jobs, None each if nobody asked.
    """

    rows: tuple[EncodedRow, ...]
    losses: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class EvaluateReply:
    """The blocks were evaluated."""

    parts: tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True)
class FailureReply:
    """The task failed."""

    sentence: str


Reply = StartReply | TrainReply | EvaluateReply | FailureReply


@dataclass(frozen=True, slots=True, eq=False)
class SharedWorkload:
    """A workload with its samples in shared memory, for a starting process.

    Attributes:
        places: of inputs and labels, client by client and then set by set.
    """

    bare: Workload
    memory: SharedBytes
    places: tuple[ArrayLocation, ...]
    sets: tuple[str, ...]

    @classmethod
    def of(cls, workload: Workload) -> SharedWorkload:
        """Return a workload with its samples copied to shared memory."""
        samples = [*workload.train, *workload.sets.values()]
        memory, locations = share([array for part in samples for array in part])
        bare = replace(workload, train=(), sets={})
        return cls(bare, memory, tuple(locations), tuple(workload.sets))

    def opened(self) -> Workload:
        """Return the workload with its samples in place, read-only."""
        arrays = [self._array(place) for place in self.places]
        samples = [Samples(x, y) for x, y in zip(arrays[::2], arrays[1::2], strict=True)]
        clients = len(samples) - len(self.sets)
        sets = dict(zip(self.sets, samples[clients:], strict=True))
        return replace(self.bare, train=tuple(samples[:clients]), sets=sets)

    def _array(self, place: ArrayLocation) -> NDArray[Any]:
        array = self.memory.array(place)
        array.flags.writeable = False
        return array


@dataclass(frozen=True, slots=True, eq=False)
class SharedState:
    """All shared memory of an engine with workers."""

    workload: SharedWorkload
    parameters: SharedBytes
    vectors: ArrayLocation
    updates: UpdateMatrix

    def vector(self, which: int) -> NDArray[np.float32]:
        """Return one of the two vectors, for reading or writing."""
        vector: NDArray[np.float32] = self.parameters.array(self.vectors)[which]
        return vector

    def on(self, device: str) -> SharedState:
        """Return the same memory for a worker that computes on a device of its own."""
        bare = replace(self.workload.bare, device=device)
        return replace(self, workload=replace(self.workload, bare=bare))

    def close(self) -> None:
        """Release all of it."""
        self.workload.memory.close()
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

    _workload: Workload
    _trainer: UpdateTrainer

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._evaluator: Evaluator | None = None

    def reply(self, task: Task) -> Reply:
        """Return the reply to a task, which must be a `StartTask` first."""
        try:
            with as_training_error():
                return self._done(task)
        except CmflError as error:
            return FailureReply(str(error))

    def _done(self, task: Task) -> Reply:
        match task:
            case StartTask():
                self._workload = self._shared.workload.opened()
                self._trainer = self._workload.trainer()
                return StartReply(self._trainer.chunk, isa_in_force())
            case TrainTask():
                return self._trained(task)
            case EvaluateTask():
                return self._evaluated(task)

    def _trained(self, task: TrainTask) -> TrainReply:
        matrix = self._shared.updates.rows(task.rows)
        rows = [matrix[index] for index in task.places]
        losses = self._workload.empty_losses(task.jobs)
        device = self._workload.device
        updates, threads = self._shared.updates, hashing_threads(device)
        with RowPayloads(updates, task.rows, task.places, threads) as payloads:
            # On the processor the other cores are the other workers'.
            begin = None if device == "cpu" else payloads.begin
            self._trainer.train(self._shared.vector(START), task.jobs, rows, losses, begin)
            encoded = tuple(payloads.result())
        return TrainReply(encoded, tuple(losses_of(losses, task.jobs)))

    def _evaluated(self, task: EvaluateTask) -> EvaluateReply:
        if self._evaluator is None:
            self._evaluator = Evaluator(self._workload)
        vector = self._shared.vector(MEASURED)
        return EvaluateReply(tuple(self._evaluator.parts(vector, task.sets, task.chosen)))
