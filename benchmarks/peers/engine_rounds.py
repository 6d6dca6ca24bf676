"""The contender of this project: FedAvg by the engine with two workers, every update formed.

Variants: "built-in" is the registry's own model by the path that the planner chooses; "own" is the
plain module that all other contenders train, by the plain path that any module can take.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.measuring import RoundClock, contender_arguments, hand_in, sketch
from benchmarks.workloads import own_module, read_workload
from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples
from clients.local_sgd import LocalTraining, batches
from clients.models.model import model_of
from clients.models.registry import model_named
from clients.training.engine_factory import open_engine
from clients.training.lockstep.execution_plan import plan
from clients.training.port import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.workloads import PeerWorkload, Work
    from clients.training.port import TrainedUpdate, TrainingPath

WORKERS = 2
_BLOCK = 65_536


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = contender_arguments()
    workload = read_workload(arguments.work)
    work = workload.work
    training, jobs, data = training_of(work), jobs_of(workload), data_of(workload)
    path: TrainingPath = "plain"
    if arguments.variant == "own":
        model = model_of(own_module, data.form, {"work": work.name})
    else:
        model = model_named(work.model, data.form, dict(work.options))
        path = plan(model, data, training, device="cpu").path
    vector = workload.start.copy()
    clock, first, sketches = RoundClock(), np.empty(0, dtype=np.float32), []
    with open_engine(
        model,
        data,
        training,
        device="cpu",
        workers=WORKERS,
        path=path,
        sets={},
        rows=len(jobs),
    ) as engine:
        for number in range(arguments.rounds + 1):
            clock.start()
            begun = time.perf_counter()
            updates = engine.train(vector, jobs)
            seconds = time.perf_counter() - begun
            mean = _mean(updates, len(vector))
            vector -= mean
            clock.stop(training=seconds)
            if number == 0:
                first, sketches = mean, [sketch(update.vector) for update in updates]
    hand_in(arguments.out, clock, first, ["torch"], sketches, path=path)


def jobs_of(workload: PeerWorkload) -> list[TrainingJob]:
    """Return a job for each client of a workload."""
    return [TrainingJob(i, hashlib.sha256(b"%d" % i).digest()) for i in range(len(workload.y))]


def training_of(work: Work) -> LocalTraining:
    """Return how each client of a workload trains."""
    return LocalTraining(
        learning_rate=work.learning_rate, batch_size=work.batch, local_steps=work.steps
    )


def data_of(workload: PeerWorkload) -> FederatedData:
    """Return the data, put so that each job's batch order is the order of the workload."""
    work, train = workload.work, []
    for job, x, y in zip(jobs_of(workload), workload.x, workload.y, strict=True):
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
    mean = np.zeros(dimension, dtype=np.float32)
    vectors = [update.vector for update in updates]
    for start in range(0, dimension, _BLOCK):
        part = mean[start : start + _BLOCK]
        for vector in vectors:
            part += vector[start : start + _BLOCK]
        part /= len(vectors)
    return mean


if __name__ == "__main__":
    main()
