"""The workload of an engine: model, data and training settings, and the order of its jobs.

A model may be user code: whatever it raises becomes a TrainingError.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import Collate, Samples
from clients.devices import card_failure
from clients.models.model import Model, ParameterVector
from clients.training.device_distances import ResidentUpdates
from clients.training.plain_trainer import (
    LocalTraining,
    PlainTrainer,
    samples_gone_through,
    step_count,
)
from clients.training.port import TrainingError, TrainingJob, TrainingPath, UpdateTrainer
from ledger.io.user_code import message_of
from ledger.protocol.errors import CmflError
from ledger.protocol.payloads import FLOAT32, PayloadForm

_SEED_BYTES = 32
# Size of a piece as a fraction of a worker's share of the remaining cost: the others never wait for
# a late large piece, and small jobs are still sent many at a time.
_SHARE = 0.5
_LONGEST = 500


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Everything that a process needs for training and evaluation.

    Attributes:
        device: its name in the settings, of what computes in the process that opens a trainer.
        sizes: number of training samples of each client of the run, also of those whose samples
            are not here; None where all are.
        records_losses: whether updates come with the loss of every local step.
    """

    model: Model
    train: Sequence[Samples]
    sets: Mapping[str, Samples]
    collate: Collate
    training: LocalTraining
    device: str
    path: TrainingPath
    sizes: tuple[int, ...] | None = None
    records_losses: bool = False
    form: PayloadForm = FLOAT32

    def trainer(self, resident: ResidentUpdates | None = None) -> UpdateTrainer:
        """Return a new trainer for this process.

        Args:
            resident: keeps the updates on a GPU as well; None to keep none there.
        """
        arguments = (self.model, self.train, self.collate, self.training, self.device)
        if self.path == "plain":
            return PlainTrainer(*arguments, resident)
        # The imports for tracing are only needed on this path.
        from clients.training.lockstep.trainer import LockstepTrainer  # noqa: PLC0415

        return LockstepTrainer(*arguments, self.sizes, resident)

    def costs(self, jobs: Sequence[TrainingJob]) -> list[int]:
        """Return the number of samples that each job processes."""
        sizes = [len(self.train[job.client].y) for job in jobs]
        return [samples_gone_through(size, self.training) for size in sizes]

    def empty_losses(self, jobs: Sequence[TrainingJob]) -> list[NDArray[np.float32]] | None:
        """Return the destination of each job's losses; None if none are recorded."""
        if not self.records_losses:
            return None
        sizes = (len(self.train[job.client].y) for job in jobs)
        return [np.empty(step_count(size, self.training), np.float32) for size in sizes]

    def require_jobs(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> None:
        """Validate the arguments of a training; raises ValueError."""
        require_jobs(start, jobs, self.model.dimension, len(self.train))

    def require_sets(self, vector: ParameterVector, sets: Sequence[str]) -> None:
        """Validate the arguments of an evaluation."""
        require_vector("vector", vector, self.model.dimension)
        for name in sets:
            if name not in self.sets:
                raise ValueError(f"no set of samples {name!r}; there are {', '.join(self.sets)}")


def require_jobs(
    start: ParameterVector, jobs: Sequence[TrainingJob], dimension: int, clients: int
) -> None:
    """Validate the arguments of a training of some clients; raises ValueError."""
    require_vector("start", start, dimension)
    for job in jobs:
        if not 0 <= job.client < clients:
            raise ValueError(f"client {job.client} of {clients}")
        if len(job.seed) != _SEED_BYTES:
            raise ValueError(f"seed of {len(job.seed)} bytes for client {job.client}")
    if len({job.client for job in jobs}) < len(jobs):
        raise ValueError("two jobs of one client in the same call")


def require_vector(what: str, vector: ParameterVector, d: int) -> None:
    """Reject parameters that are not float32 of shape (d,); raises ValueError."""
    if vector.shape != (d,) or vector.dtype != np.float32:
        raise ValueError(f"{what}: {vector.dtype} {vector.shape}, not float32 ({d},)")


class JobQueue:
    """The jobs of one round that no worker has taken yet: the longest come first.

    The order affects the duration of a round, never an update.

    Args:
        chunk: number of jobs that a worker prefers to take at once.
    """

    def __init__(self, costs: Sequence[int], workers: int, chunk: int) -> None:
        # Equal jobs stay in order, so repeated runs behave alike.
        self._remaining = deque(sorted(range(len(costs)), key=lambda job: (-costs[job], job)))
        self._costs = costs
        self._remaining_cost = sum(costs)
        self._workers = workers
        # A trainer of many clients at once takes whole chunks, as many as the other workers.
        pieces = workers * math.ceil(len(costs) / (workers * chunk))
        self._chunk = math.ceil(len(costs) / max(pieces, 1))

    def take(self) -> list[int]:
        """Return the indices of the jobs that a free worker does next; empty if none are left."""
        target_cost = _SHARE * self._remaining_cost / self._workers
        jobs: list[int] = []
        cost = 0
        while chunk := list(islice(self._remaining, self._chunk)):
            chunk_cost = sum(self._costs[job] for job in chunk)
            if jobs and cost + chunk_cost > target_cost:
                break
            jobs.extend(self._remaining.popleft() for _ in chunk)
            cost += chunk_cost
        self._remaining_cost -= cost
        return jobs


def losses_of(
    losses: Sequence[NDArray[np.float32]] | None, jobs: Sequence[TrainingJob]
) -> list[bytes | None]:
    """Return the losses of each job as bytes; None of each if none are recorded."""
    if losses is None:
        return [None] * len(jobs)
    return [part.tobytes() for part in losses]  # PyTorch only runs on little-endian machines


@contextmanager
def as_training_error() -> Iterator[None]:
    """Turn any exception of a model or a card into a TrainingError."""
    try:
        yield
    except (CmflError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: the command would end as if it had succeeded
        failure = card_failure(error)
        if failure is not None:
            raise TrainingError(failure) from error
        message = " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:_LONGEST]
        raise TrainingError(f"the model failed: {message}") from error
