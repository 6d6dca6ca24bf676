"""The engine that a run's settings ask for, and the class of updates that it trains.

The bytes of an update follow from its inputs and from this environment class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clients.datasets.federated_data import FederatedData, Samples
from clients.devices import (
    SET_LATE,
    InstructionSet,
    card_gib,
    card_index,
    device_named,
    isa_in_force,
    processor_kind,
    require_cap,
)
from clients.models.model import Model, ParameterVector
from clients.training.jobs import JobRunner, as_training_error, blocks_of_sets, totals_by_set
from clients.training.pool_engine import PoolEngine
from clients.training.port import (
    Engine,
    LocalTraining,
    PendingEvaluation,
    TrainedUpdate,
    TrainingJob,
    TrainingPath,
    Workload,
)
from clients.training.ray_engine import require_reachable
from clients.training.updates import ResidentUpdates, UpdateMatrix, engine_distances
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payloads import FLOAT32, PayloadForm
from ledger.protocol.rules.distance import Distances
from ledger.protocol.training_replay import MAX_ENVIRONMENT_TEXT, TrainingEnvironment

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

MAX_WORKERS = 256


class LocalEngine(Engine):
    """Trains and evaluates in this process, at once."""

    def __init__(
        self,
        workload: Workload,
        rows: int,
        distances: Distances,
        resident: ResidentUpdates | None = None,
    ) -> None:
        self.distances, self._workload = distances, workload
        self._updates = UpdateMatrix(rows, workload.model.dimension, workload.form)
        with as_training_error():
            self._runner = JobRunner(workload, self._updates, resident)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        self._workload.require_jobs(start, jobs)
        count = len(jobs)
        with as_training_error():
            encoded = self._runner.train(start, jobs, count, range(count), hashes_meanwhile=True)
        return self._updates.updates(jobs, encoded)

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        self._workload.require_sets(vector, sets)
        with as_training_error():
            parts = self._runner.evaluator.parts(vector, sets, slice(None))
        totals = totals_by_set(len(sets), blocks_of_sets(self._workload, sets), parts)
        return lambda: totals

    def close(self) -> None:
        self._updates.close()


def run_engine(
    configuration: Configuration,
    model: Model,
    data: FederatedData,
    rows: int,
    sets: Mapping[str, Samples] | None = None,
    *,
    records_losses: bool = False,
) -> Engine:
    """Return the engine of a run whose training path is settled; see `open_engine`."""
    machine = configuration.machine
    return open_engine(
        model,
        data,
        configuration.training,
        device=machine.device,
        workers=machine.workers,
        path=settled_path(configuration),
        sets=sets or {},
        rows=rows,
        cluster=machine.cluster,
        isa=machine.isa,
        records_losses=records_losses,
        form=configuration.protocol.payload_form,
    )


def require_engine(device: str, cluster: str | None, isa: InstructionSet | None = None) -> None:
    """Reject settings that cannot open an engine, without opening one."""
    if cluster is None:
        kind = device_named(device).type
    else:
        card_index(device)  # which refuses an unknown name
        kind = device
    if isa is not None:
        _require_cappable(isa, kind, cluster)
    if cluster is not None:
        require_reachable(cluster)


def _require_cappable(isa: InstructionSet, device: str, cluster: str | None) -> None:
    if cluster is not None:
        raise ConfigurationError(
            f"machine.isa = {isa} cannot be combined with machine.engine = ray, because "
            "actors use their nodes' environment; remove one of the two"
        )
    if device != "cpu":
        raise ConfigurationError(
            f"machine.isa = {isa} with machine.device = {device} has no effect, because the "
            "GPU trains; remove one of the two"
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

    One worker without `isa`, a cap of the instruction set, is this process. Others are spawned, and
    live until `close`: their script must guard its main part by `if __name__ == "__main__"`. With
    `cluster`, the address of a Ray cluster, no losses are recorded.
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
        return PoolEngine(workload, workers, rows, engine_distances(workload.device, workers), isa)
    torch_device = device_named(workload.device)
    resident = None
    # Scores are of what the payloads say, which in another form is not what the card trained.
    if torch_device.type == "cuda" and form == FLOAT32:
        resident = ResidentUpdates(torch_device, model.dimension)
    return LocalEngine(workload, rows, engine_distances(workload.device, 1, resident), resident)


_ELSEWHERE = {"ray": "unknown: actors of a cluster", "flower": "unknown: SuperNodes of Flower"}


def environment_of(configuration: Configuration) -> TrainingEnvironment:
    """Return the class of updates that a client states for a run; see `environment_of_run`."""
    machine = configuration.machine
    if machine.trains_elsewhere and machine.device != "cpu":
        raise ConfigurationError(
            f"machine.device = {machine.device} with machine.engine = {machine.engine}: the "
            "training cards are unknown to this process, so their environment cannot be recorded"
        )
    return environment_of_run(configuration)


def environment_of_run(configuration: Configuration) -> TrainingEnvironment:
    """Return the class of a simulation's updates: unknown, equal to none, with Ray and Flower."""
    machine, path = configuration.machine, settled_path(configuration)
    if not machine.trains_elsewhere:
        return environment_here(path, machine.device, machine.isa)
    here = environment_here(path, "cpu")
    device = here.device if machine.device == "cpu" else "unknown: cards of a cluster"
    return replace(here, isa=_ELSEWHERE[machine.engine], device=device)


def environment_here(
    path: TrainingPath, device: str, cap: InstructionSet | None = None
) -> TrainingEnvironment:
    """Return the class of updates that an engine of this process trains under its cap."""
    kind, card = "cpu", device_named(device)
    if card.type != "cpu":
        major, minor = torch.cuda.get_device_capability(card)
        # The memory decides on the size of the chunks, and so on the last digits.
        versions = f"sm_{major}{minor}, {card_gib(card)} GiB, CUDA {torch.version.cuda}"
        versions += f", cuDNN {torch.backends.cudnn.version()}"
        name = torch.cuda.get_device_name(card)[: MAX_ENVIRONMENT_TEXT - len(versions) - 2]
        kind = f"{name}, {versions}"
    return TrainingEnvironment(
        torch=str(torch.__version__),
        path=path,
        processor=processor_kind(),
        isa=cap or isa_in_force(),
        device=kind,
        threads=1,  # devices.reproducible: whatever the machine has
    )


def require_known(environment: TrainingEnvironment) -> None:
    """Refuse to compare updates with an environment whose class is unknown."""
    if environment.isa.endswith(SET_LATE):
        raise ConfigurationError(
            "variables that select torch's kernels were set after this process started; set "
            "them before, or set machine.isa instead"
        )


def settled_path(configuration: Configuration) -> TrainingPath:
    """Return the training path of a run document."""
    path = configuration.training.path
    if path == "auto":
        raise ConfigurationError("the run document does not define training.path")
    return path
