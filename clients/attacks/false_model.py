"""The model of false labels that attackers train on their own samples."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from clients.datasets.federated_data import FederatedData, frozen_samples
from clients.local_sgd import LocalTraining
from clients.models.model import Model, ParameterVector
from clients.random_streams import named_stream
from clients.training.port import TrainingError, TrainingJob
from clients.training.workload import Workload, as_training_error
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

ROUNDS = 40
"""Local trainings, one after another, that the model gets."""


def false_model(  # noqa: PLR0913, PLR0917 - everything that a training needs
    model: Model,
    data: FederatedData,
    malicious: Collection[ClientId],
    training: LocalTraining,
    initial: ParameterVector,
    device: str,
    seed: int,
) -> ParameterVector:
    """Return w_bad, trained on the attackers' samples with label y + 1, modulo the classes.

    Plain SGD as in a client's training, but 40 times as long, on the samples of all attackers.

    Args:
        data: of the run; only the attackers' training samples are used.
        malicious: indices of the attackers, at least one.
        initial: w_1, shape (d,).

    Returns:
        Shape (d,).
    """
    if data.form.task != "classify":
        raise ConfigurationError(
            f"this attack trains on false classes of samples, and the task is {data.form.task}"
        )
    own = [data.train[client] for client in sorted(malicious)]
    x, y = (np.concatenate(parts) for parts in zip(*own, strict=True))
    longer = replace(
        training,
        proximal=None,
        calibrated=False,
        local_steps=None if training.local_steps is None else ROUNDS * training.local_steps,
        local_epochs=None if training.local_epochs is None else ROUNDS * training.local_epochs,
    )
    workload = Workload(
        model=model,
        train=[frozen_samples(x, (y + 1) % data.form.classes)],
        sets={},
        collate=data.collate,
        training=longer,
        device=device,
        path="plain",
    )
    update = np.empty(model.dimension, dtype=np.float32)
    job = TrainingJob(0, named_stream(seed, "false labels").bytes(32))
    with as_training_error():
        workload.trainer().train(initial, [job], [update])
    if not np.isfinite(update).all():
        raise TrainingError("the attackers' model of false labels diverged: lower the rate")
    return initial - update
