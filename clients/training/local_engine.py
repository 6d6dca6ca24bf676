"""An engine in the process of its caller, for one core or one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.training.evaluation_blocks import (
    Evaluator,
    FinishedEvaluation,
    blocks_of,
    totals_by_set,
)
from clients.training.model_failures import as_training_error
from clients.training.port import Engine, TrainedUpdate
from clients.training.update_matrix import UpdateMatrix, payload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.models.model import ParameterVector
    from clients.training.port import TrainingJob
    from clients.training.workload import Workload
    from ledger.protocol.rules.distance.rule import Distances


class LocalEngine(Engine):
    """Does everything here and at once.

    Attributes:
        distances: twin of `plain_distances`.

    Args:
        workload: what it computes with.
        rows: most jobs of one call; more take memory once more.
        distances: computes all distances of a round.

    Raises:
        ConfigurationError: a device that is not there.
    """

    def __init__(self, workload: Workload, rows: int, distances: Distances) -> None:
        self.distances = distances
        self._workload = workload
        self._trainer = workload.trainer()
        self._evaluator: Evaluator | None = None
        self._updates = UpdateMatrix(rows, workload.model.dimension)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; those of the call before are overwritten.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, no client twice.

        Raises:
            ValueError: a start of another length, an unknown or repeated client, or a seed that
                is not 32 bytes.
            TrainingError: the model failed on a client's samples.
        """
        self._workload.require_jobs(start, jobs)
        rows = self._updates.rows(len(jobs))
        with as_training_error():
            self._trainer.train(start, jobs, list(rows))
        return [
            TrainedUpdate(job.client, payload_of(row)) for job, row in zip(jobs, rows, strict=True)
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> FinishedEvaluation:
        """Return what a parameter vector comes to.

        Args:
            vector: shape (d,).
            sets: names of sets of samples.

        Raises:
            ValueError: a vector of another length, or an unknown set.
            TrainingError: the model failed on the samples.
        """
        self._workload.require_sets(vector, sets)
        cut = blocks_of([len(self._workload.sets[name].y) for name in sets])
        with as_training_error():
            if self._evaluator is None:
                self._evaluator = Evaluator(self._workload)
            parts = self._evaluator.parts(vector, sets, slice(None))
        return FinishedEvaluation(totals_by_set(len(sets), cut, parts))

    def close(self) -> None:
        """Give up the memory, as far as nobody holds an update any more."""
        self._updates.close()
