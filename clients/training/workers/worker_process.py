"""What one worker process does: it takes tasks from a pipe, and answers each with little.

Samples, the model's parameters and the updates are in memory that it shares with its parent; only
what to do and digests go through the pipe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from clients.datasets.federated_data import Samples
from clients.processes import follow_parent
from clients.training.evaluation_blocks import Evaluator
from clients.training.model_failures import as_training_error
from clients.training.update_matrix import payload_of
from clients.training.workers.shared_memory import ArrayLocation, SharedBytes, share
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy as np
    from numpy.typing import NDArray

    from clients.training.port import Evaluation, TrainingJob, UpdateTrainer
    from clients.training.update_matrix import UpdateMatrix
    from clients.training.workload import Workload
    from ledger.protocol.types import Digest

START, MEASURED = 0, 1
"""Rows of the shared parameters: what is trained from, and what is evaluated."""


@dataclass(frozen=True, slots=True)
class TrainTask:
    """Train some jobs of a call.

    Attributes:
        rows: rows of the matrix that the call needs.
        places: the row of each job.
        jobs: the jobs.
    """

    rows: int
    places: tuple[int, ...]
    jobs: tuple[TrainingJob, ...]


@dataclass(frozen=True, slots=True)
class EvaluateTask:
    """Evaluate some blocks of some sets.

    Attributes:
        sets: their names.
        chosen: which of their blocks.
    """

    sets: tuple[str, ...]
    chosen: slice


@dataclass(frozen=True, slots=True)
class StartTask:
    """Get ready: what every worker does first, without being told."""


Task = StartTask | TrainTask | EvaluateTask


@dataclass(frozen=True, slots=True)
class StartReply:
    """A worker can begin.

    Attributes:
        chunk: how many clients its trainer likes to take at once.
    """

    chunk: int


@dataclass(frozen=True, slots=True)
class TrainReply:
    """Updates are where they belong.

    Attributes:
        digests: of each row that was written, in the order of the task's jobs.
    """

    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class EvaluateReply:
    """Blocks were evaluated.

    Attributes:
        parts: what each of them came to.
    """

    parts: tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True)
class FailureReply:
    """A task could not be done.

    Attributes:
        sentence: why.
    """

    sentence: str


Reply = StartReply | TrainReply | EvaluateReply | FailureReply


@dataclass(frozen=True, slots=True, eq=False)
class SharedWorkload:
    """A workload whose samples lie in shared memory, to be handed to a process as it starts.

    Attributes:
        bare: the workload without samples.
        memory: where they are.
        places: of inputs and labels, client by client and then set by set.
        sets: names of the sets.
    """

    bare: Workload
    memory: SharedBytes
    places: tuple[ArrayLocation, ...]
    sets: tuple[str, ...]

    @classmethod
    def of(cls, workload: Workload) -> SharedWorkload:
        """Return a workload with its samples copied to where workers find them."""
        samples = [*workload.train, *workload.sets.values()]
        memory, places = share([array for one in samples for array in one])
        bare = replace(workload, train=(), sets={})
        return cls(bare, memory, tuple(places), tuple(workload.sets))

    def opened(self) -> Workload:
        """Return the workload with its samples where they lie, read-only."""
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
    """All memory of an engine with workers.

    Attributes:
        workload: what it computes with.
        parameters: two vectors, `START` and `MEASURED`.
        vectors: where these are.
        updates: the updates of a call.
    """

    workload: SharedWorkload
    parameters: SharedBytes
    vectors: ArrayLocation
    updates: UpdateMatrix

    def vector(self, which: int) -> NDArray[np.float32]:
        """Return one of the two vectors, to read or to write."""
        found: NDArray[np.float32] = self.parameters.array(self.vectors)[which]
        return found

    def close(self) -> None:
        """Let no process map any of it any more."""
        self.workload.memory.close()
        self.parameters.close()
        self.updates.close()


def work(connection: Connection[Reply, Task], shared: SharedState) -> None:
    """Do tasks until the parent closes the pipe, or is gone.

    Args:
        connection: where tasks come from.
        shared: the memory of the engine.
    """
    follow_parent()
    torch.set_num_threads(1)
    bench = TaskRunner(shared)
    task: Task = StartTask()
    while True:
        connection.send(bench.reply(task))
        try:
            task = connection.recv()
        except EOFError:
            return


class TaskRunner:
    """What a worker keeps between tasks.

    Args:
        shared: the memory of the engine.
    """

    _workload: Workload
    _trainer: UpdateTrainer

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._evaluator: Evaluator | None = None

    def reply(self, task: Task) -> Reply:
        """Return the answer to a task that has been done, or has failed.

        Args:
            task: the first must be a `StartTask`.
        """
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
                return StartReply(self._trainer.chunk)
            case TrainTask():
                return self._trained(task)
            case EvaluateTask():
                return self._evaluated(task)

    def _trained(self, task: TrainTask) -> TrainReply:
        matrix = self._shared.updates.rows(task.rows)
        rows = [matrix[place] for place in task.places]
        self._trainer.train(self._shared.vector(START), task.jobs, rows)
        return TrainReply(tuple(payload_of(row).digest for row in rows))

    def _evaluated(self, task: EvaluateTask) -> EvaluateReply:
        if self._evaluator is None:
            self._evaluator = Evaluator(self._workload)
        vector = self._shared.vector(MEASURED)
        return EvaluateReply(tuple(self._evaluator.parts(vector, task.sets, task.chosen)))
