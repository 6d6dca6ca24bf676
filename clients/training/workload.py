"""The workload of an engine: model, data and training settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clients.local_sgd import samples_gone_through
from clients.training.plain_trainer import PlainTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.datasets.federated_data import Collate, Samples
    from clients.local_sgd import LocalTraining
    from clients.models.model import Model, ParameterVector
    from clients.training.port import TrainingJob, UpdateTrainer

Path = Literal["plain", "lockstep"]
"""A way to compute the same steps; the updates of the two differ in their last digits."""

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Everything that a process needs for training and evaluation.

    Attributes:
        model: the model.
        train: training samples of client i at index i.
        sets: sample sets for evaluation, by name.
        collate: makes the model's inputs of stored rows.
        training: settings of the local training.
        device: "cpu" or "cuda".
        path: the kind of trainer.
    """

    model: Model
    train: Sequence[Samples]
    sets: Mapping[str, Samples]
    collate: Collate
    training: LocalTraining
    device: str
    path: Path

    def trainer(self) -> UpdateTrainer:
        """Return a new trainer for this process."""
        arguments = (self.model, self.train, self.collate, self.training, self.device)
        if self.path == "plain":
            return PlainTrainer(*arguments)
        # The imports for tracing are only needed on this path.
        from clients.training.lockstep.trainer import LockstepTrainer  # noqa: PLC0415

        return LockstepTrainer(*arguments)

    def costs(self, jobs: Sequence[TrainingJob]) -> list[int]:
        """Return the number of samples that each job processes."""
        sizes = [len(self.train[job.client].y) for job in jobs]
        return [samples_gone_through(size, self.training) for size in sizes]

    def require_jobs(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> None:
        """Validate the arguments of a training.

        Raises:
            ValueError: a start of another length, an unknown or repeated client, or a seed that is
                not 32 bytes.
        """
        self.require_vector("start", start)
        for job in jobs:
            if not 0 <= job.client < len(self.train):
                raise ValueError(f"client {job.client} of {len(self.train)}")
            if len(job.seed) != _SEED_BYTES:
                raise ValueError(f"seed of {len(job.seed)} bytes for client {job.client}")
        if len({job.client for job in jobs}) < len(jobs):
            raise ValueError("two jobs of one client in the same call")

    def require_sets(self, vector: ParameterVector, sets: Sequence[str]) -> None:
        """Validate the arguments of an evaluation.

        Raises:
            ValueError: a vector of another length, or an unknown set.
        """
        self.require_vector("vector", vector)
        for name in sets:
            if name not in self.sets:
                raise ValueError(f"no set of samples {name!r}; there are {', '.join(self.sets)}")

    def require_vector(self, what: str, vector: ParameterVector) -> None:
        """Reject a vector of another type or length; `what` names it in the message.

        Raises:
            ValueError: another type or length.
        """
        d = self.model.dimension
        if vector.shape != (d,) or vector.dtype != np.float32:
            raise ValueError(f"{what}: {vector.dtype} {vector.shape}, not float32 ({d},)")
