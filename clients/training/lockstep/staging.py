"""The batches of a chunk of clients, laid out step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from clients.datasets.federated_data import Collate, Samples
from clients.local_sgd import LocalTraining, batches
from clients.training.lockstep.execution_plan import ExecutionPlan
from clients.training.lockstep.network import Network
from clients.training.port import TrainingJob

# Limit of the steps that are laid out together.
_STAGED_BYTES = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The samples of a client, step by step.

    Attributes:
        rows: indices of samples, shape (steps, batch); 0 where a batch is padded.
        counts: number of samples of each step's batch, shape (steps,).
    """

    job: TrainingJob
    samples: Samples
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Number of the client's local steps."""
        return len(self.counts)


def schedule_of(
    job: TrainingJob, samples: Samples, settings: LocalTraining, batch: int
) -> Schedule:
    """Return the schedule of a client."""
    steps = list(batches(job.seed, len(samples.y), settings))
    counts = np.fromiter(map(len, steps), dtype=np.int64, count=len(steps))
    if (counts == batch).all():
        return Schedule(job, samples, np.stack(steps), counts)
    rows = np.zeros((len(steps), batch), dtype=np.int64)
    for row, indices in zip(rows, steps, strict=True):
        row[: len(indices)] = indices
    return Schedule(job, samples, rows, counts)


class Staging:
    """Buffers for the batches of a few steps of a chunk."""

    def __init__(self, network: Network, choice: ExecutionPlan, collate: Collate) -> None:
        self._network = network
        self._collate = collate
        self._batch = choice.batch
        step_bytes = 4 * (network.inputs.numel() + network.targets.numel())
        self.room = max(1, min(choice.steps, _STAGED_BYTES // step_bytes))
        shapes = (network.inputs.shape, network.targets.shape, network.weights.shape)
        # Client after client within a step, as in the network.
        self._inputs, self._targets, self._weights = (
            torch.zeros(self.room, choice.chunk, choice.batch, *shape[1:]) for shape in shapes
        )
        self._classes = torch.eye(network.targets.shape[1]).numpy()
        self._first = 0

    def begin(self, step: int, schedules: Sequence[Schedule]) -> None:
        """Copy the batches of a step into the network.

        Args:
            step: number of earlier steps; steps come in order, from 0.
        """
        if step % self.room == 0:
            self._first = step
            self._inputs.zero_()
            self._weights.zero_()
            for place, schedule in enumerate(schedules):
                self._stage(place, schedule)
        network, here = self._network, step - self._first
        network.inputs.copy_(self._inputs[here].flatten(0, 1))
        network.targets.copy_(self._targets[here].flatten(0, 1))
        network.weights.copy_(self._weights[here].flatten(0, 1))

    def losses(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of each client's batches in the staged steps so far.

        Args:
            probabilities: of the classes in these steps, shape (steps, rows, classes).

        Returns:
            Shape (steps, chunk): infinite where the probability of a sample's class is 0 in
            float32, of no meaning for clients that had no more steps to take.
        """
        steps = len(probabilities)
        targets, weights = self._targets[:steps], self._weights[:steps, :, :, 0]
        # One class of each row: there is one term that is not 0.
        likelihoods = probabilities.view(targets.shape).mul(targets).sum(dim=3)
        # Rows without a sample have weight 0, and then xlogy is 0 whatever is likely.
        return torch.xlogy(weights, likelihoods).sum(dim=2).neg_()

    def _stage(self, place: int, schedule: Schedule) -> None:
        rows = schedule.rows[self._first : self._first + self.room]
        counts = schedule.counts[self._first : self._first + self.room]
        if not len(rows):
            return
        x, y = schedule.samples
        flat = rows.ravel()
        inputs = self._collate(x[flat])
        is_taken = np.arange(self._batch) < counts[:, None]  # (steps, batch)
        target = self._inputs[: len(rows), place].numpy()
        np.multiply(
            inputs.reshape(target.shape),
            is_taken.reshape(*is_taken.shape, *[1] * (target.ndim - 2)),
            out=target,
        )
        self._targets[: len(rows), place].numpy()[...] = self._classes[y[rows]]
        np.divide(is_taken, counts[:, None], out=self._weights[: len(rows), place, :, 0].numpy())
