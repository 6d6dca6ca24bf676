"""What every device promises: repeatable updates near float64, by any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from clients.datasets.federated_data import DataForm, as_stored, frozen_samples
from clients.models.model import Model, model_of
from clients.models.registry import model_named
from clients.training.engine_factory import LocalEngine
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.pool_engine import PoolEngine
from clients.training.port import LocalTraining
from clients.training.updates import engine_distances
from tests.clients.training import made
from tests.clients.training.lockstep.support import (
    CALIBRATED,
    EPOCHS,
    FORM,
    JOBS,
    TRAIN,
    error,
    exact_update,
    updates,
)
from tests.clients.training.made import work_of
from tests.clients.training.on_devices import ON_EACH_DEVICE

if TYPE_CHECKING:
    from tests.processes import Forks

MANY_STEPS = LocalTraining(learning_rate=0.01, batch_size=4, local_steps=200)
MORE_MIB = 64.0


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 3)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.output = nn.Linear(27, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pool(torch.tanh(self.convolution(x)))
        return self.output((y + y.relu()).flatten(1))  # type: ignore[no-any-return]


def pooled(_form: DataForm, _options: Mapping[str, Any]) -> nn.Module:
    return Pooled()


def require_repeated(
    trainers: list[LockstepTrainer] | list[PlainTrainer],
    model: Model,
    settings: LocalTraining = EPOCHS,
) -> Any:
    start = model.initial(np.random.default_rng(5))
    first = updates(trainers[0], start, JOBS)
    for trainer in trainers:
        assert updates(trainer, start, JOBS).tobytes() == first.tobytes()
        assert updates(trainer, start, JOBS[::-1])[::-1].tobytes() == first.tobytes()
    for job, update in zip(JOBS, first, strict=True):
        assert error(update, exact_update(model, start, job, settings)) < 1e-4
    return first


@pytest.mark.parametrize("settings", [EPOCHS, CALIBRATED], ids=["plain loss", "calibrated"])
@ON_EACH_DEVICE
def test_recorded_steps_of_ragged_clients_repeat(device: str, settings: LocalTraining) -> None:
    model = model_named("cnn", FORM)
    arguments = (model, TRAIN, as_stored, settings, device)
    require_repeated([LockstepTrainer(work_of(*arguments)) for _ in range(2)], model, settings)


@ON_EACH_DEVICE
def test_calibrated_steps_of_one_client_after_another_repeat(device: str) -> None:
    model = model_named("cnn", FORM)
    arguments = (model, TRAIN, as_stored, CALIBRATED, device)
    require_repeated([PlainTrainer(work_of(*arguments)) for _ in range(2)], model, CALIBRATED)


@ON_EACH_DEVICE
def test_a_users_overlapping_pools_repeat(device: str) -> None:
    model = model_of(pooled, FORM)
    arguments = (model, TRAIN, as_stored, EPOCHS, device)
    require_repeated([PlainTrainer(work_of(*arguments)) for _ in range(2)], model)


@ON_EACH_DEVICE
def test_an_lstm_repeats_and_agrees_with_the_processor(device: str) -> None:
    form = DataForm((12,), 20, input_dtype="int64", vocabulary=20)
    rng = np.random.default_rng(0)
    train = [
        frozen_samples(rng.integers(0, 20, (count, 12)), rng.integers(0, 20, count))
        for count in (9, 4, 11)
    ]
    model = model_named("shakespeare_lstm", form, {"hidden": 8})
    start, jobs = model.initial(np.random.default_rng(5)), JOBS[:3]
    arguments = (model, train, as_stored, EPOCHS)
    first, again = (
        updates(PlainTrainer(work_of(*arguments, device)), start, jobs) for _ in range(2)
    )
    assert first.tobytes() == again.tobytes()
    expected = updates(PlainTrainer(work_of(*arguments, "cpu")), start, jobs)
    assert max(error(a, b) for a, b in zip(first, expected, strict=True)) < 1e-4


@ON_EACH_DEVICE
def test_two_workers_train_what_one_does(device: str, forks: Forks) -> None:
    work = replace(made.workload(made.CONVOLUTIONAL), device=device, path="lockstep")
    start, distances = made.start_of(made.CONVOLUTIONAL), engine_distances(device)
    with LocalEngine(work, len(made.JOBS), distances) as engine:
        alone = [update.payload.digest for update in engine.train(start, made.JOBS)]
        measured = engine.evaluate(start, tuple(made.SETS))()
    # On a card they are begun as users begin them.
    with forks.children() if device == "cpu" else nullcontext():
        pool = PoolEngine(work, 2, len(made.JOBS), distances)
    with pool as engine:
        both = [update.payload.digest for update in engine.train(start, made.JOBS)]
        assert engine.evaluate(start, tuple(made.SETS))() == measured
    assert both == alone


@ON_EACH_DEVICE
def test_many_steps_keep_no_more_memory_than_a_few(device: str) -> None:
    model = model_named("cnn", FORM)
    start, jobs = model.initial(np.random.default_rng(5)), JOBS[:4]
    short = MANY_STEPS.model_copy(update={"local_steps": 20})
    few = LockstepTrainer(work_of(model, TRAIN, as_stored, short, device))
    updates(few, start, jobs)
    before = memory_mib(device)
    many = LockstepTrainer(work_of(model, TRAIN, as_stored, MANY_STEPS, device))
    first = updates(many, start, jobs)
    # The twenty steps have taken what one set of buffers takes; two hundred share another.
    assert memory_mib(device) - before < max(MORE_MIB, before if device == "cuda" else 0)
    taken = memory_mib(device)
    assert updates(many, start, jobs).tobytes() == first.tobytes()
    assert memory_mib(device) - taken < MORE_MIB


def memory_mib(device: str) -> float:
    if device == "cuda":
        return torch.cuda.memory_reserved() / 2**20
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) / 1024
