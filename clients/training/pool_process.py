"""A process of the pool, and the memory that it shares with its parent.

It is an unlinked file whose descriptor is passed to a worker at its start. `multiprocessing`'s own
shared memory has names that outlive a killed owner.

Samples, parameters and updates are in memory shared with the parent; only tasks and digests go
through the pipe.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clients.datasets.federated_data import Samples
from clients.training.environment import isa_in_force
from clients.training.evaluation import Evaluator
from clients.training.port import Evaluation, TrainedUpdate, TrainingJob, UpdateTrainer
from clients.training.update_writer import RowPayloads, hashing_threads
from clients.training.workload import Workload, as_training_error, losses_of
from ledger.io.processes import follow_parent
from ledger.protocol.errors import CmflError
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.types import Digest

# Suits vector instructions and cache lines.
_ALIGNMENT = 64
_DTYPE = "<f4"
_ITEM_BYTES = 4


class SharedBytes:
    """A growing piece of memory that a process may map any number of times.

    It can be passed only to a process that is being started.

    Args:
        size: initial bytes; memory is used only when it is written.
    """

    def __init__(self, size: int) -> None:
        self._descriptor = _nameless_file()
        self._size = 0
        self._mapped: mmap.mmap | None = None
        self.require(size)

    def require(self, size: int) -> None:
        """Grow to at least `size` bytes; earlier mappings stay valid."""
        size = max(size, mmap.PAGESIZE)
        if size > self._size:
            # Another process may have grown it already.
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._size, self._mapped = size, None

    def array(self, location: ArrayLocation) -> NDArray[Any]:
        """Return a shared array: all processes see what one of them writes."""
        if self._descriptor < 0:
            raise ValueError("the memory is closed")
        if self._mapped is None:
            self._mapped = mmap.mmap(self._descriptor, self._size)
        count = math.prod(location.shape)
        flat = np.frombuffer(self._mapped, location.dtype, count, location.offset)
        return flat.reshape(location.shape)

    def close(self) -> None:
        """Close the descriptor; arrays stay valid while they are referenced."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._mapped = -1, None

    def __getstate__(self) -> tuple[Any, int]:
        return DupFd(self._descriptor), self._size

    def __setstate__(self, state: tuple[Any, int]) -> None:
        handle, self._size = state
        self._descriptor = handle.detach()
        self._mapped = None


@dataclass(frozen=True, slots=True)
class ArrayLocation:
    """Location of an array in shared memory.

    Attributes:
        shape: its shape.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]


def share(arrays: Iterable[NDArray[Any]]) -> tuple[SharedBytes, list[ArrayLocation]]:
    """Return shared memory with copies of arrays, and their locations.

    Args:
        arrays: of numbers, or of strings of a fixed width.
    """
    sources, locations, end = list(arrays), [], 0
    for array in sources:
        if array.dtype.hasobject:
            raise ValueError(f"an array of {array.dtype} cannot be shared with a worker")
        locations.append(ArrayLocation(end, array.dtype.str, array.shape))
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    memory = SharedBytes(end)
    for array, location in zip(sources, locations, strict=True):
        memory.array(location)[...] = array
    return memory, locations


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cmfl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """The payload of a row.

    Attributes:
        digest: sha256 of its bytes.
    """

    digest: Digest
    size: int


class UpdateMatrix:
    """Updates of shape (rows, d) and their payloads, in the same memory round after round."""

    def __init__(self, rows: int, dimension: int, form: PayloadForm = FLOAT32) -> None:
        self._dimension = dimension
        self._form = form
        self._memory = SharedBytes(rows * dimension * _ITEM_BYTES)
        self._encoded = None if form == FLOAT32 else SharedBytes(rows * form.size(dimension))

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the first `count` rows for writing; the matrix grows if needed."""
        self._memory.require(count * self._dimension * _ITEM_BYTES)
        if self._encoded is not None:
            self._encoded.require(count * self._form.size(self._dimension))
        return self._memory.array(ArrayLocation(0, _DTYPE, (count, self._dimension)))

    def encode(self, count: int, index: int) -> EncodedRow:
        """Write a row's payload, of `count` rows; the row becomes what its payload says.

        A row with a number that the form cannot hold stays as it is, with a malformed payload.
        """
        row = self.rows(count)[index]
        if self._encoded is None:
            return EncodedRow(payload_of(row).digest, row.nbytes)
        payload = self._form.payload(row)
        self._payloads(count, self._encoded)[index, : payload.size] = np.frombuffer(
            payload.data, np.uint8
        )
        if payload.update is not None:
            row[...] = payload.update
        return EncodedRow(payload.digest, payload.size)

    def update(
        self, count: int, index: int, encoded: EncodedRow, client: int, losses: bytes | None
    ) -> TrainedUpdate:
        """Return an encoded row of `count` as the update of a client, without copying."""
        row = self.rows(count)[index]
        row.flags.writeable = False
        if self._encoded is None:
            return TrainedUpdate(client, payload_of(row, encoded.digest), losses)
        data = self._payloads(count, self._encoded)[index, : encoded.size].data.toreadonly()
        is_usable = encoded.size == self._form.size(self._dimension)
        payload = Payload(data, encoded.digest, row if is_usable else None)
        return TrainedUpdate(client, payload, losses, row)

    def close(self) -> None:
        """Release the memory; rows stay valid while they are referenced."""
        self._memory.close()
        if self._encoded is not None:
            self._encoded.close()

    def _payloads(self, count: int, memory: SharedBytes) -> NDArray[np.uint8]:
        return memory.array(ArrayLocation(0, "u1", (count, self._form.size(self._dimension))))


def payload_of(row: NDArray[np.float32], digest: Digest | None = None) -> Payload:
    """Return a row as a read-only payload of form float32, without copying.

    Args:
        digest: of its bytes, from the process that wrote them; None to hash them here.
    """
    data = row.data.toreadonly().cast("B")
    return Payload.of(data) if digest is None else Payload(data, digest)


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
