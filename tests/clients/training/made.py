"""Small made data and two models, for every test of an engine; workers import this file, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clients.datasets.federated_data import (
    Collate,
    DataForm,
    FederatedData,
    Samples,
    frozen_samples,
)
from clients.models.model import Model, model_of
from clients.models.registry import model_named
from clients.training.port import LocalTraining, TrainingJob, Workload
from ledger.protocol.encoding import sha256

FORM = DataForm((1, 8, 8), 10)
SETTINGS = LocalTraining(learning_rate=0.5, batch_size=16, local_steps=5)
EPOCHS = LocalTraining(learning_rate=0.5, batch_size=16, local_epochs=2)


def inked(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.astype(np.float32) / 16


def samples(count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 17, (count, 1, 8, 8), dtype=np.uint8)
    return frozen_samples(x, rng.integers(0, 10, count))


# Clients of unequal size: fewer samples than a batch, than the steps need, and more.
DATA = FederatedData(
    name="made",
    form=FORM,
    train=tuple(samples(count, seed) for seed, count in enumerate((40, 7, 16, 300, 33, 1, 90, 60))),
    test=samples(700, 100),
    client_tests=tuple(samples(count, 200 + count) for count in (3, 9)),
    collate=inked,
)
SETS = {"test": DATA.test, "client 0": samples(3, 203), "client 1": samples(9, 209)}


def work_of(
    model: Model,
    train: Sequence[Samples],
    collate: Collate,
    training: LocalTraining,
    device: str = "cpu",
    sizes: tuple[int, ...] | None = None,
) -> Workload:
    """Return what a trainer needs, which evaluates nothing."""
    return Workload(model, train, {}, collate, training, device, "plain", sizes)


def jobs(*clients: int) -> list[TrainingJob]:
    return [TrainingJob(client, sha256(b"job %d" % client)) for client in clients]


JOBS = jobs(7, 2, 0, 5, 3, 1)


class TwoBranches(nn.Module):
    """A model as a user may write it: branches, a frozen tensor, one parameter without use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(64, width)
        self.unused = nn.Parameter(torch.ones(3))
        self.right = nn.Conv2d(1, 2, 3)
        self.frozen = nn.Parameter(torch.full((width,), 0.5), requires_grad=False)
        self.out = nn.Linear(width + 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = torch.tanh(self.left(x.flatten(1))) * self.frozen
        right = self.right(x).amax((2, 3))
        return self.out(torch.cat([left, right], dim=1))  # type: ignore[no-any-return]


class Failing(nn.Module):
    """A model that fails where a batch has fewer than eight samples."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x.flatten(1)) + 0 * x[7].sum()  # type: ignore[no-any-return]


def two_branches(_form: DataForm, options: Mapping[str, Any]) -> nn.Module:
    return TwoBranches(int(options["width"]))


def failing(_form: DataForm, _options: Mapping[str, Any]) -> nn.Module:
    return Failing()


BRANCHED = model_of(two_branches, FORM, {"width": 5})
CONVOLUTIONAL = model_named("cnn", FORM, {})


def workload(model: Model, training: LocalTraining = SETTINGS) -> Workload:
    return Workload(model, DATA.train, SETS, DATA.collate, training, "cpu", "plain")


def start_of(model: Model) -> NDArray[np.float32]:
    return model.initial(np.random.default_rng(3))
