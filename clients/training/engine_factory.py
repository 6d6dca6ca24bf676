"""The engine that a run's settings ask for; on one core or GPU, one in the caller's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clients.datasets.federated_data import FederatedData, Samples
from clients.devices import InstructionSet, device_named, require_cap, require_device_name
from clients.models.model import Model, ParameterVector
from clients.training.device_distances import ResidentUpdates, engine_distances
from clients.training.environment import isa_in_force
from clients.training.evaluation import (
    Evaluator,
    blocks_of,
    totals_by_set,
)
from clients.training.plain_trainer import LocalTraining
from clients.training.pool_engine import PoolEngine
from clients.training.pool_process import UpdateMatrix
from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingJob,
    TrainingPath,
)
from clients.training.ray_engine import require_reachable
from clients.training.update_writer import RowPayloads, hashing_threads
from clients.training.workload import Workload, as_training_error, losses_of
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payloads import FLOAT32, PayloadForm
from ledger.protocol.rules.distance import Distances

MAX_WORKERS = 256


class LocalEngine(Engine):
    """Trains and evaluates in this process, at once.

    Args:
        rows: expected number of jobs per call; more cost another allocation.
        resident: updates that stay on a GPU for the distances; None for none.
    """

    def __init__(
        self,
        workload: Workload,
        rows: int,
        distances: Distances,
        resident: ResidentUpdates | None = None,
    ) -> None:
        self.distances = distances
        self._workload = workload
        with as_training_error():
            self._trainer = workload.trainer(resident)
        self._evaluator: Evaluator | None = None
        self._updates = UpdateMatrix(rows, workload.model.dimension, workload.form)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        self._workload.require_jobs(start, jobs)
        rows = self._updates.rows(len(jobs))
        losses = self._workload.empty_losses(jobs)
        places = range(len(jobs))
        with RowPayloads(
            self._updates, len(jobs), places, hashing_threads(self._workload.device)
        ) as payloads:
            with as_training_error():
                self._trainer.train(start, jobs, list(rows), losses, payloads.begin)
            encoded = payloads.result()
        job_losses = losses_of(losses, jobs)
        return [
            self._updates.update(
                len(jobs), place, encoded[place], jobs[place].client, job_losses[place]
            )
            for place in places
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Evaluate a parameter vector; see `Engine.evaluate`."""
        self._workload.require_sets(vector, sets)
        blocks = blocks_of([len(self._workload.sets[name].y) for name in sets])
        with as_training_error():
            if self._evaluator is None:
                self._evaluator = Evaluator(self._workload)
            parts = self._evaluator.parts(vector, sets, slice(None))
        totals = totals_by_set(len(sets), blocks, parts)
        return PendingEvaluation(lambda: totals)

    def close(self) -> None:
        """Release the memory; updates that are still referenced stay valid."""
        self._updates.close()


def require_engine(device: str, cluster: str | None, isa: InstructionSet | None = None) -> None:
    """Reject settings with which no engine can be opened, without opening one.

    Args:
        cluster: address of a Ray cluster; None for this machine without Ray.
        isa: cap of the instruction set; None for none.
    """
    if cluster is None:
        kind = device_named(device).type
    else:
        require_device_name(device)
        kind = device
    if isa is not None:
        _require_cappable(isa, kind, cluster)
    if cluster is not None:
        require_reachable(cluster)


def _require_cappable(isa: InstructionSet, device: str, cluster: str | None) -> None:
    """Refuse a cap that would not hold."""
    if cluster is not None:
        raise ConfigurationError(
            f"machine.isa = {isa} with machine.engine = ray: actors start with the environment of "
            f"their nodes: leave one of them out"
        )
    if device != "cpu":
        raise ConfigurationError(
            f"machine.isa = {isa} with machine.device = {device}: it caps a processor, and a GPU "
            f"trains: leave one of them out"
        )
    require_cap(isa)


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
    isa: InstructionSet | None = None,
    records_losses: bool = False,
    form: PayloadForm = FLOAT32,
) -> Engine:
    """Return an engine; the updates are the same for any number of workers.

    Args:
        workers: 1 for this process; more for as many spawned processes, which live until `close`. A
            script that asks for more, or for a cap, must guard its main part by
            `if __name__ == "__main__"`.
        cluster: address of a Ray cluster; None for this machine without Ray.
        isa: cap of the instruction set; None for none. One worker, too, is a spawned process,
            unless this one has started under the same cap.
        records_losses: whether updates come with the loss of every local step; not on a cluster.
    """
    if not 1 <= workers <= MAX_WORKERS:
        raise ConfigurationError(f"machine.workers = {workers}: must be 1 .. {MAX_WORKERS}")
    if isa is not None:
        _require_cappable(isa, device_named(device).type, cluster)
    workload = Workload(
        model=model,
        train=data.train,
        sets=dict(sets),
        collate=data.collate,
        training=training,
        device=str(device_named(device)) if cluster is None else device,
        path=path,
        sizes=data.sample_counts,
        records_losses=records_losses,
        form=form,
    )
    if cluster is not None:
        # Only those who ask for a cluster load what speaks to one.
        from clients.training.ray_engine import RayEngine  # noqa: PLC0415

        # This process may have no card, and need not have one.
        return RayEngine(workload, workers, engine_distances("cpu", workers), cluster)
    if workers > 1 or (isa is not None and isa != isa_in_force()):
        distances = engine_distances(workload.device, workers)
        return PoolEngine(workload, workers, rows, distances, isa)
    torch_device = device_named(workload.device)
    resident = None
    # Scores are of what the payloads say, which in another form is not what the card trained.
    if torch_device.type == "cuda" and form == FLOAT32:
        resident = ResidentUpdates(torch_device, model.dimension)
    return LocalEngine(workload, rows, engine_distances(workload.device, 1, resident), resident)
