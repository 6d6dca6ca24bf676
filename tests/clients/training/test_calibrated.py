"""Calibrated training: the loss is taken on logits shifted by a client's own class counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from clients.attacks.data.label_flip import LABEL_FLIP
from clients.attacks.data.poisoning import poisoned
from clients.attacks.updates.update_attack import AttackParameters
from clients.configuration.loading import checked, load
from clients.datasets.federated_data import NO_TARGET, DataForm, as_stored, frozen_samples
from clients.local_sgd import LocalTraining
from clients.models.model import model_of
from clients.models.registry import model_named
from clients.models.tasks import class_shift
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.port import TrainingJob
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from tests.clients.training.lockstep.support import error, exact_update, updates
from tests.clients.training.made import BRANCHED, CONVOLUTIONAL, DATA, JOBS, SETTINGS, start_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.federated_data import Samples, Task
    from clients.models.model import Option

CALIBRATED = replace(SETTINGS, calibrated=True)
TRAINERS = pytest.mark.parametrize("trainer", [PlainTrainer, LockstepTrainer])
Trainer = type[PlainTrainer] | type[LockstepTrainer]


def test_a_shift_counts_labels_and_leaves_out_ignored_ones() -> None:
    labels = np.array([[2, 0, NO_TARGET], [2, NO_TARGET, NO_TARGET]])
    expected = np.log(np.array([1.1, 0.1, 2.1, 0.1])).astype(np.float32)
    found = class_shift(labels, 4)
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


@TRAINERS
def test_one_step_by_pencil(trainer: Trainer) -> None:
    # W = b = 0; x = 1, 2 of class 0 and x = 3 of class 1. The logits log 2.1 and log 1.1 give the
    # probabilities 21/32 and 11/32. So the gradients are 10/32 for W_0 and -1/96 for b_0.
    inputs = np.array([1, 2, 3], dtype=np.float32).reshape(3, 1, 1, 1)
    model = model_named("softmax", DataForm((1, 1, 1), 2), {})
    step = LocalTraining(learning_rate=0.5, batch_size=3, local_steps=1, calibrated=True)
    one = trainer(model, [frozen_samples(inputs, np.array([0, 0, 1]))], as_stored, step, "cpu")
    (found,) = updates(one, np.zeros(4, dtype=np.float32), [TrainingJob(0, bytes(32))])
    expected = [5 / 32, -5 / 32, -1 / 192, 1 / 192]
    assert np.allclose(found, expected, rtol=0, atol=1e-7)


def test_equal_counts_train_as_without_calibration() -> None:
    # Softmax does not depend on a constant shift; the sums round differently.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 1, 8, 8)).astype(np.float32)
    train = [frozen_samples(x, np.arange(20) % 10)]
    job = [TrainingJob(0, bytes(32))]
    start = start_of(BRANCHED)
    found, plain = (
        updates(PlainTrainer(BRANCHED, train, as_stored, settings, "cpu"), start, job)
        for settings in (CALIBRATED, SETTINGS)
    )
    assert error(found, plain) < 1e-5


@TRAINERS
def test_an_update_descends_the_calibrated_loss_in_float64(trainer: Trainer) -> None:
    start = start_of(CONVOLUTIONAL)
    train = tuple(frozen_samples(DATA.collate(x), y) for x, y in DATA.train)
    found = updates(trainer(CONVOLUTIONAL, train, as_stored, CALIBRATED, "cpu"), start, JOBS)
    for job, update in zip(JOBS, found, strict=True):
        exact = exact_update(CONVOLUTIONAL, start, job, CALIBRATED, train)
        assert error(update, exact) < 1e-4
        assert error(exact_update(CONVOLUTIONAL, start, job, SETTINGS, train), exact) > 1e-2


class _Tagger(nn.Module):
    def __init__(self, form: DataForm) -> None:
        super().__init__()
        self.out = nn.Linear(1, form.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x.unsqueeze(-1).float())  # type: ignore[no-any-return]


def tagger(form: DataForm, _options: Mapping[str, Option]) -> nn.Module:
    return _Tagger(form)


def sequences() -> Samples:
    tags = np.array([[0, 1, 1], [1, NO_TARGET, NO_TARGET], [0, 2, NO_TARGET]])
    return frozen_samples(np.arange(9).reshape(3, 3) / 9, tags)


def test_the_tokens_with_a_target_are_counted_for_classes_of_tokens() -> None:
    form = DataForm((3,), 3, input_dtype="float32", task="token-classify")
    model, samples = model_of(tagger, form), sequences()
    start = np.linspace(-1, 1, model.dimension).astype(np.float32)
    shifted = start.copy()
    shifted[-3:] += np.log(np.array([2.1, 3.1, 1.1], dtype=np.float32))  # the bias comes last
    found, plain = (
        updates(
            PlainTrainer(model, [samples], as_stored, training, "cpu"),
            begin,
            [TrainingJob(0, bytes(32))],
        )
        for training, begin in ((CALIBRATED, start), (SETTINGS, shifted))
    )
    assert error(found, plain) < 1e-5


@TRAINERS
def test_poisoned_labels_are_counted_as_trained(trainer: Trainer) -> None:
    data = poisoned(DATA, [ClientId(0)], LABEL_FLIP, AttackParameters(), seed=0)
    model = model_named("softmax", DATA.form, {})
    start = start_of(model)
    one = trainer(model, data.train, DATA.collate, CALIBRATED, "cpu")
    (found,) = updates(one, start, [TrainingJob(0, bytes(32))])
    train = [frozen_samples(DATA.collate(x), y) for x, y in data.train]
    exact = exact_update(model, start, TrainingJob(0, bytes(32)), CALIBRATED, train)
    assert error(found, exact) < 1e-5


@pytest.mark.parametrize("task", ["regress", "causal-lm", "masked-lm"])
@TRAINERS
def test_a_task_without_class_labels_is_refused_by_name(trainer: Trainer, task: Task) -> None:
    model = replace(BRANCHED, form=replace(BRANCHED.form, task=task))
    with pytest.raises(ConfigurationError, match=rf"training\.calibrated = true: .* {task},"):
        trainer(model, DATA.train, DATA.collate, CALIBRATED, "cpu")


def test_calibration_is_recorded_only_where_true() -> None:
    plain, set_ = load("smoke"), load("smoke", settings=("training.calibrated=true",))
    false = load("smoke", settings=("training.calibrated=false",))
    assert "calibrated" not in plain.recorded()["training"]
    assert "calibrated" not in plain.to_toml()
    assert plain == false
    assert plain.chain_id() == false.chain_id() != set_.chain_id()
    assert "calibrated" not in plain.training.model_dump_json()
    assert set_.recorded()["training"] == plain.recorded()["training"] | {"calibrated": True}
    assert set_.local_training() == replace(plain.local_training(), calibrated=True)
    assert checked(set_.model_dump(exclude_none=True)) == set_
