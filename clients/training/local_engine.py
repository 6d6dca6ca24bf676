"""An engine in the caller's process, for one core or one GPU."""

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
    from ledger.protocol.rules.distance import Distances


class LocalEngine(Engine):
    """Trains and evaluates in this process, at once.

    Attributes:
        distances: counterpart of `plain_distances`.

    Args:
        workload: model, data and settings.
        rows: expected number of jobs per call; more cost another allocation.
        distances: computes all distances of a round.

    Raises:
        ConfigurationError: the device is not available.
    """

    def __init__(self, workload: Workload, rows: int, distances: Distances) -> None:
        self.distances = distances
        self._workload = workload
        self._trainer = workload.trainer()
        self._evaluator: Evaluator | None = None
        self._updates = UpdateMatrix(rows, workload.model.dimension)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        self._workload.require_jobs(start, jobs)
        rows = self._updates.rows(len(jobs))
        with as_training_error():
            self._trainer.train(start, jobs, list(rows))
        return [
            TrainedUpdate(job.client, payload_of(row)) for job, row in zip(jobs, rows, strict=True)
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> FinishedEvaluation:
        """Evaluate a parameter vector; see `Engine.evaluate`."""
        self._workload.require_sets(vector, sets)
        blocks = blocks_of([len(self._workload.sets[name].y) for name in sets])
        with as_training_error():
            if self._evaluator is None:
                self._evaluator = Evaluator(self._workload)
            parts = self._evaluator.parts(vector, sets, slice(None))
        return FinishedEvaluation(totals_by_set(len(sets), blocks, parts))

    def close(self) -> None:
        """Release the memory; updates that are still referenced stay valid."""
        self._updates.close()
