"""Many clients in, many update vectors out.

The contract of the engine: with the same torch build on the same kind of processor, a job's
update has the same bytes whatever the number of workers, their chunks and the other jobs. So
a client is the unit of work, it is trained with one intra-op thread, its batch order follows
from the job's seed alone, and updates come back in the order of the jobs.
"""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.devices import device_named
from clients.local_sgd import LocalTrainer, LocalTraining, TrainingJob, Updates
from clients.processes import follow_parent
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from clients.datasets.federated import Samples
    from clients.models.model import Model, ParameterVector

MAX_WORKERS = 256
_CHUNKS_PER_WORKER = 4
_SEED_BYTES = 32


class TrainingError(CmflError):
    """Local training could not be carried out: a worker process ended."""


class TrainingEngine:
    """Trains the clients of a round, here or in a pool of worker processes.

    A context manager: leaving it ends the workers.

    Args:
        model: the model.
        train: training samples of client i at index i.
        settings: how each client trains.
        device: "cpu", "cuda" or "auto".
        workers: 1 trains in this process; more train in as many spawned processes, which keep
            the data and live until `close`. A script that asks for more must guard its main
            part by `if __name__ == "__main__"`.

    Raises:
        ConfigurationError: a number of workers out of range, or a device that is not there.
    """

    def __init__(
        self,
        model: Model,
        train: Sequence[Samples],
        settings: LocalTraining,
        device: str = "cpu",
        workers: int = 1,
    ) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ConfigurationError(f"workers = {workers}: must be 1 .. {MAX_WORKERS}")
        self.model = model
        self.settings = settings
        self.clients = len(train)
        arguments = (model, train, settings, device_named(device).type)
        self._workers = workers
        self._local = LocalTrainer(*arguments) if workers == 1 else None
        self._pool = (
            ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), _Worker.start, arguments
            )
            if workers > 1
            else None
        )

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> Updates:
        """Return the update Δ = w_start − w_end of every job.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, each with the seed of its batch order.

        Returns:
            Updates in the order of the jobs, shape (jobs, d); not finite where SGD diverged.

        Raises:
            ValueError: a start of another length, an unknown client, or a seed that is not
                32 bytes.
            TrainingError: a worker process ended before its work was done.
        """
        if start.shape != (self.model.dimension,) or start.dtype != np.float32:
            raise ValueError(
                f"start: {start.dtype} {start.shape}, not float32 ({self.model.dimension},)"
            )
        for job in jobs:
            if not 0 <= job.client < self.clients:
                raise ValueError(f"client {job.client} of {self.clients}")
            if len(job.seed) != _SEED_BYTES:
                raise ValueError(f"seed of {len(job.seed)} bytes for client {job.client}")
        if self._local is not None:
            return self._local.updates(start, jobs)
        return self._train_in_workers(start, jobs)

    def close(self) -> None:
        """End the worker processes and wait for them; the engine cannot train after it."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _train_in_workers(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> Updates:
        assert self._pool is not None
        length = max(1, math.ceil(len(jobs) / (self._workers * _CHUNKS_PER_WORKER)))
        chunks = [jobs[first : first + length] for first in range(0, len(jobs), length)]
        updates = np.empty((len(jobs), self.model.dimension), dtype=np.float32)
        try:
            futures = [self._pool.submit(_Worker.updates, start, chunk) for chunk in chunks]
            for position, future in enumerate(futures):
                first = position * length
                updates[first : first + length] = future.result()
        except BrokenExecutor as error:
            raise TrainingError(f"a training worker ended before its work: {error}") from error
        return updates


class _Worker:
    """What one worker process keeps between rounds."""

    trainer: ClassVar[LocalTrainer]

    @classmethod
    def start(
        cls, model: Model, train: Sequence[Samples], settings: LocalTraining, device: str
    ) -> None:
        follow_parent()
        cls.trainer = LocalTrainer(model, train, settings, device)

    @classmethod
    def updates(cls, start: ParameterVector, jobs: Sequence[TrainingJob]) -> Updates:
        return cls.trainer.updates(start, jobs)
