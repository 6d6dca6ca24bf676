"""The contenders of this project: the engine alone, and with `--members` whole CMFL rounds."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import workloads
from benchmarks.workloads import PeerWorkload, RoundClock, Work
from clients.configuration.loading import checked
from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples
from clients.models.registry import model_named
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run, open_run
from clients.training.engine_factory import open_engine
from clients.training.lockstep.plan import plan
from clients.training.plain_trainer import batches
from clients.training.port import LocalTraining, TrainedUpdate, TrainingJob
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs

WORKERS = 2


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = workloads.contender_arguments()
    workload = workloads.read_workload(arguments.work)
    (_play if arguments.members else _train)(arguments, workload)


def _train(arguments: argparse.Namespace, workload: PeerWorkload) -> None:
    work = workload.work
    training, jobs, data = training_of(work), jobs_of(len(workload.y)), data_of(workload)
    model = model_named(work.model, data.form, dict(work.options))
    path = plan(model, data, training, device="cpu").path
    vector = workload.start.copy()
    clock, first = RoundClock(), np.empty(0, dtype=np.float32)
    machine: dict[str, Any] = {"device": "cpu", "workers": WORKERS, "path": path}
    with open_engine(model, data, training, sets={}, rows=len(jobs), **machine) as engine:
        for number in range(arguments.rounds + 1):
            clock.start()
            begun = time.perf_counter()
            updates = engine.train(vector, jobs)
            seconds = time.perf_counter() - begun
            mean = _mean(updates, len(vector))
            vector -= mean
            clock.stop(training=seconds)
            if number == 0:
                first = mean
    workloads.hand_in(arguments.out, clock, first, ["torch"], path=path)


def jobs_of(clients: int) -> list[TrainingJob]:
    """Return a job for each client of a workload."""
    return [TrainingJob(i, hashlib.sha256(b"%d" % i).digest()) for i in range(clients)]


def training_of(work: Work) -> LocalTraining:
    """Return how each client of a workload trains."""
    return LocalTraining(
        learning_rate=work.learning_rate, batch_size=work.batch, local_steps=work.steps
    )


def data_of(workload: PeerWorkload) -> FederatedData:
    """Return the data, put so that each job's batch order is the order of the workload."""
    work, train = workload.work, []
    for job, x, y in zip(jobs_of(len(workload.y)), workload.x, workload.y, strict=True):
        order = np.concatenate(list(batches(job.seed, len(y), training_of(work))))
        place = np.argsort(order)
        train.append(frozen_samples(x[place], y[place]))
    form = DataForm(
        input_shape=workload.x.shape[2:],
        classes=work.classes,
        input_dtype="int64" if work.tokens else "float32",
        vocabulary=work.classes if work.tokens else None,
    )
    return FederatedData(name=work.name, form=form, train=tuple(train), test=train[0])


def _mean(updates: Sequence[TrainedUpdate], dimension: int) -> NDArray[np.float32]:
    """Return the mean of the updates, summed in their order, block by block."""
    mean, block = np.zeros(dimension, dtype=np.float32), 65_536
    for start in range(0, dimension, block):
        part = mean[start : start + block]
        for update in updates:
            part += update.vector[start : start + block]
        part /= len(updates)
    return mean


def _play(arguments: argparse.Namespace, workload: PeerWorkload) -> None:
    """Play whole rounds of CMFL; the variants are "memory" and "chain", the ledger."""
    clock, first = RoundClock(), np.empty(0, dtype=np.float32)
    heads: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        data = Path(folder) / "femnist.npz"
        write_images(workload.x, workload.y, data)
        values = image_settings(workload.work, data, len(workload.y), arguments.rounds + 1)
        values["protocol"]["committee_rate"] = arguments.members / len(workload.y)
        values["evaluation"]["every"] = 2**31 - 1  # never
        values["machine"] = {"workers": WORKERS, "keep": "accepted", "ledger": arguments.variant}
        home, configuration = Home(Path(folder)), checked(values)
        with ExitStack() as stack:
            if arguments.variant == "memory":
                opened = open_memory_run(home.path, "bench", configuration)
            else:
                chain = stack.enter_context(EmbeddedChain.create(home.chain))
                blobs = FolderBlobs(home.blobs)
                opened = open_run(home.path, "bench", configuration, chain, blobs)
            run = stack.enter_context(opened)

            def on_round(row: RoundMetrics) -> None:
                nonlocal first
                clock.stop()
                if not row.decided:
                    raise RuntimeError(f"round {row.round} was abandoned: there is nothing to time")
                heads.append(row.head)
                if len(clock.rounds) == 1:
                    first = run.population.initial - run.simulation.model
                clock.start()

            clock.start()
            run.go_on(on_round)
            path = run.configuration.training.path
    workloads.hand_in(arguments.out, clock, first, ["torch"], path=path, heads=heads)


def image_settings(work: Work, data: Path, clients: int, rounds: int) -> dict[str, Any]:
    """Return the settings of a run on a file of images, in which all clients are active."""
    return {
        "protocol": {"clients": clients, "active_rate": 1.0, "rounds": rounds},
        "data": {"name": "femnist", "path": str(data)},
        "model": {"name": work.model, "options": dict(work.options)},
        "training": {
            "learning_rate": work.learning_rate,
            "batch_size": work.batch,
            "local_steps": work.steps,
        },
        "evaluation": {"every": rounds},
    }


def write_images(x: NDArray[np.float32], y: NDArray[np.int64], path: Path) -> None:
    """Write images as a data set, with one image of each client as its test."""
    clients, samples = y.shape
    images = np.rint(x * 255).astype(np.uint8).reshape(clients, samples, 28, 28)
    labels, writers = y.astype(np.uint8), np.arange(clients, dtype=np.int16)
    count = clients * (samples + 1)
    np.savez(
        path,
        image=np.concatenate([images.reshape(-1, 28, 28), images[:, 0]]),
        label=np.concatenate([labels.ravel(), labels[:, 0]]),
        writer=np.concatenate([writers.repeat(samples), writers]),
        is_test=(np.arange(count) >= clients * samples).astype(np.uint8),
        source_file=np.zeros(count, dtype=np.uint8),
    )


if __name__ == "__main__":
    main()
