"""The engine that a run's settings ask for; on one core or GPU, one in the caller's process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.devices import device_named
from clients.training.device_distances import engine_distances
from clients.training.evaluation import (
    Evaluator,
    FinishedEvaluation,
    blocks_of,
    totals_by_set,
)
from clients.training.port import Engine
from clients.training.ray_address import require_reachable
from clients.training.workers.pool_engine import PoolEngine
from clients.training.workers.shared_memory import UpdateMatrix
from clients.training.workload import Workload, as_training_error, losses_of
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload_forms import FLOAT32, PayloadForm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.datasets.federated_data import FederatedData, Samples
    from clients.local_sgd import LocalTraining
    from clients.models.model import Model, ParameterVector
    from clients.training.port import TrainedUpdate, TrainingJob, TrainingPath
    from ledger.protocol.rules.distance import Distances

MAX_WORKERS = 256


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
        self._updates = UpdateMatrix(rows, workload.model.dimension, workload.form)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        self._workload.require_jobs(start, jobs)
        rows = self._updates.rows(len(jobs))
        losses = self._workload.empty_losses(jobs)
        with as_training_error():
            self._trainer.train(start, jobs, list(rows), losses)
        matrix, count = self._updates, len(jobs)
        return [
            matrix.update(count, index, matrix.encode(count, index), job.client, loss)
            for index, (job, loss) in enumerate(zip(jobs, losses_of(losses, jobs), strict=True))
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


def require_engine(device: str, cluster: str | None) -> None:
    """Reject settings with which no engine can be opened, without opening one.

    Args:
        device: "cpu", "cuda" or "auto".
        cluster: address of a Ray cluster; None for this machine without Ray.

    Raises:
        ConfigurationError: the device or the cluster is not available.
    """
    device_named(device)
    if cluster is not None:
        require_reachable(cluster)


def open_engine(  # noqa: PLR0913 - what is computed, and seven ways to say how
    model: Model,
    data: FederatedData,
    training: LocalTraining,
    *,
    device: str,
    workers: int,
    path: TrainingPath,
    sets: Mapping[str, Samples],
    rows: int,
    cluster: str | None = None,
    records_losses: bool = False,
    form: PayloadForm = FLOAT32,
) -> Engine:
    """Return an engine; the updates are the same for any number of workers.

    Args:
        model: the model.
        data: the divided data.
        training: settings of the local training.
        device: "cpu", "cuda" or "auto"; the code for CUDA has never run on a GPU.
        workers: 1 for this process; more for as many spawned processes, which live until `close`. A
            script that asks for more must guard its main part by `if __name__ == "__main__"`.
        path: "plain" or "lockstep".
        sets: sample sets for evaluation, by name.
        rows: expected number of jobs per call.
        cluster: address of a Ray cluster; None for this machine without Ray.
        records_losses: whether updates come with the loss of every local step; not on a cluster.
        form: of the updates' payloads.

    Raises:
        ConfigurationError: unknown or missing device, too many workers, more than one worker on
            CUDA, a cluster with CUDA, or no cluster at the address.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise ConfigurationError(f"machine.workers = {workers}: must be 1 .. {MAX_WORKERS}")
    workload = Workload(
        model=model,
        train=data.train,
        sets=dict(sets),
        collate=data.collate,
        training=training,
        device=device_named(device).type,
        path=path,
        sizes=data.sample_counts,
        records_losses=records_losses,
        form=form,
    )
    distances = engine_distances(workload.device, workers)
    if cluster is not None:
        # Only those who ask for a cluster load what speaks to one.
        from clients.training.ray_engine import RayEngine  # noqa: PLC0415

        return RayEngine(workload, workers, distances, cluster)
    if workers == 1:
        return LocalEngine(workload, rows, distances)
    return PoolEngine(workload, workers, rows, distances)
