"""The engine that a run's settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.devices import device_named
from clients.training.device_distances import engine_distances
from clients.training.local_engine import LocalEngine
from clients.training.ray_address import require_reachable
from clients.training.workers.pool_engine import PoolEngine
from clients.training.workload import Workload
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.federated_data import FederatedData, Samples
    from clients.local_sgd import LocalTraining
    from clients.models.model import Model
    from clients.training.port import Engine
    from clients.training.workload import Path

MAX_WORKERS = 256


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


def open_engine(  # noqa: PLR0913 - what is computed, and six ways to say how
    model: Model,
    data: FederatedData,
    training: LocalTraining,
    *,
    device: str,
    workers: int,
    path: Path,
    sets: Mapping[str, Samples],
    rows: int,
    cluster: str | None = None,
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
    )
    distances = engine_distances(workload.device, workers)
    if cluster is not None:
        # Only those who ask for a cluster load what speaks to one.
        from clients.training.ray_engine import RayEngine  # noqa: PLC0415

        return RayEngine(workload, workers, distances, cluster)
    if workers == 1:
        return LocalEngine(workload, rows, distances)
    return PoolEngine(workload, workers, rows, distances)
