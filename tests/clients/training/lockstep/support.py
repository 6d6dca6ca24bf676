"""Small models of known layers, and the same training in float64 to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm, Samples, as_stored, frozen_samples
from clients.devices import reproducible
from clients.models.model import Model, load_vector, model_of, trainable
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer, batches
from clients.training.port import LocalTraining, TrainingJob
from tests.clients.training.made import jobs, work_of

FORM = DataForm((1, 8, 8), 10)
STEPS = LocalTraining(learning_rate=0.1, batch_size=4, local_steps=3)
EPOCHS = LocalTraining(learning_rate=0.1, batch_size=4, local_epochs=2)
CALIBRATED = EPOCHS.model_copy(update={"calibrated": True})
SIZES = (9, 4, 30, 3, 12, 7, 1, 9, 20, 5, 8, 16)


def samples(count: int, seed: int, form: DataForm = FORM) -> Samples:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, *form.input_shape)).astype(np.float32)
    return frozen_samples(x, rng.integers(0, form.classes, count))


TRAIN = tuple(samples(count, seed) for seed, count in enumerate(SIZES))


JOBS = jobs(*range(len(SIZES)))


def sequential(*layers: nn.Module) -> Model:
    def factory(_form: DataForm, _options: Mapping[str, Any]) -> nn.Module:
        import copy

        return copy.deepcopy(nn.Sequential(*layers))

    return model_of(factory, FORM)


def updates(
    trainer: LockstepTrainer | PlainTrainer, start: NDArray[np.float32], wanted: list[TrainingJob]
) -> NDArray[np.float32]:
    rows = np.zeros((len(wanted), len(start)), dtype=np.float32)
    trainer.train(start, wanted, list(rows))
    return rows


def both(
    model: Model, settings: LocalTraining, train: Sequence[Samples] = TRAIN
) -> tuple[LockstepTrainer, PlainTrainer]:
    arguments = (model, train, as_stored, settings, "cpu")
    return LockstepTrainer(work_of(*arguments)), PlainTrainer(work_of(*arguments))


def exact_update(
    model: Model, start: NDArray[np.float32], job: TrainingJob, settings: LocalTraining,
    train: Sequence[Samples] = TRAIN,
) -> NDArray[np.float64]:  # fmt: skip
    module = model.module().double()
    load_vector(module, torch.tensor(start, dtype=torch.float64))
    parameters = [p for _, p in trainable(module)]
    starts = [p.detach().clone() for p in parameters]
    x, y = train[job.client]
    shift = torch.zeros(model.form.classes)
    if settings.calibrated:
        shift = (torch.bincount(torch.tensor(y), minlength=len(shift)).double() + 0.1).log()
    with reproducible(torch.device("cpu")):
        for indices in batches(job.seed, len(y), settings):
            logits = module(torch.tensor(x[indices], dtype=torch.float64))
            loss = functional.cross_entropy(logits + shift, torch.tensor(y[indices]))
            if settings.proximal is not None:
                moved = [((p - s) ** 2).sum() for p, s in zip(parameters, starts, strict=True)]
                loss = loss + settings.proximal / 2 * sum(moved)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=settings.learning_rate)
    end: NDArray[np.float64] = torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()
    return start.astype(np.float64) - end


def error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
