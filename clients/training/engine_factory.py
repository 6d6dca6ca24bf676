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
    """Return an engine; the updates are the same whatever the number of workers.

    Args:
        model: the model.
        data: whose clients train.
        training: how each client trains.
        device: "cpu", "cuda" or "auto". What is done on CUDA is the same code as on the CPU, but
            nobody has run it on a GPU yet.
        workers: 1 does everything in this process; more in as many spawned processes, which keep
            the data and live until `close`. A script that asks for more must guard its main part
            by `if __name__ == "__main__"`.
        path: by which trainer.
        sets: samples to evaluate on, by name.
        rows: how many clients one call trains at most: the memory for their updates is asked for
            once. More can be trained, but take memory again.
        cluster: address of a Ray cluster whose actors are the workers, "local" for one of its
            own; None for this machine without Ray.

    Returns:
        The engine, which is a context manager; workers may still be starting.

    Raises:
        ConfigurationError: a number of workers out of range, or a device that is not there.
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
