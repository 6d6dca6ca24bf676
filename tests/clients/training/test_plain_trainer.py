"""The plain path: SGD, its proximal term and its calibrated loss, with the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from clients.attacks.samples import LABEL_FLIP, poisoned
from clients.attacks.updates import AttackParameters
from clients.configuration.loading import checked, load
from clients.datasets.federated_data import (
    NO_TARGET,
    DataForm,
    Samples,
    Task,
    as_stored,
    frozen_samples,
)
from clients.devices import reproducible
from clients.models.model import Model, Option, class_shift, load_vector, model_of, vector_of
from clients.models.registry import model_named
from clients.training.lockstep.plan import plan
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import (
    CollatedBatches,
    PlainTrainer,
    ResidentBatches,
    batches,
)
from clients.training.port import LocalTraining, TrainingJob
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from tests.clients.training.lockstep.support import error, exact_update, updates
from tests.clients.training.made import (
    BRANCHED,
    CONVOLUTIONAL,
    DATA,
    EPOCHS,
    JOBS,
    SETTINGS,
    inked,
    jobs,
    start_of,
    work_of,
)

MODELS = pytest.mark.parametrize("model", [BRANCHED, CONVOLUTIONAL], ids=["branched", "cnn"])
BOTH = pytest.mark.parametrize("training", [SETTINGS, EPOCHS], ids=["steps", "epochs"])


def trainer(model: Model, training: LocalTraining = SETTINGS) -> PlainTrainer:
    return PlainTrainer(work_of(model, DATA.train, DATA.collate, training, "cpu"))


@MODELS
@BOTH
def test_a_plain_training_loop_gives_the_same_bytes(model: Model, training: LocalTraining) -> None:
    start, chosen = start_of(model), JOBS[:3]
    for row, job in zip(updates(trainer(model, training), start, chosen), chosen, strict=True):
        with reproducible(torch.device("cpu")):
            end = trained_by_a_loop(model, training, start, job)
        assert row.tobytes() == (start - end).tobytes()


def trained_by_a_loop(
    model: Model, training: LocalTraining, start: NDArray[np.float32], job: TrainingJob
) -> NDArray[np.float32]:
    module, (x, y) = model.module(), DATA.train[job.client]
    load_vector(module, torch.tensor(start))
    optimizer = torch.optim.SGD(module.parameters(), lr=training.learning_rate)
    for indices in batches(job.seed, len(y), training):
        optimizer.zero_grad()
        logits = module(torch.tensor(inked(x[indices])))
        nn.functional.cross_entropy(logits, torch.tensor(y[indices])).backward()
        optimizer.step()
    return vector_of(module)


@MODELS
@BOTH
def test_an_update_has_equal_bytes_in_any_company_and_order(model: Model, training: Any) -> None:
    start, one = start_of(model), trainer(model, training)
    together = updates(one, start, JOBS)
    assert np.isfinite(together).all()
    assert updates(one, start, JOBS[::-1])[::-1].tobytes() == together.tobytes()
    alone = [updates(one, start, [job])[0] for job in JOBS]
    assert np.stack(alone).tobytes() == together.tobytes()


@pytest.mark.parametrize(("offset", "first"), [(1, 0), (0, 1), (7, 13)])
def test_an_update_is_independent_of_memory_locations(offset: int, first: int) -> None:
    one, d = trainer(CONVOLUTIONAL), CONVOLUTIONAL.dimension
    start = np.empty(d + 64, dtype=np.float32)[first : first + d]
    start[:] = start_of(CONVOLUTIONAL)
    row = np.empty(d + 64, dtype=np.float32)[offset : offset + d]
    one.train(start, JOBS[:1], [row])
    assert row.tobytes() == updates(one, start_of(CONVOLUTIONAL), JOBS[:1])[0].tobytes()


def test_the_callers_threads_seed_and_gradient_mode_change_nothing() -> None:
    one, start = trainer(CONVOLUTIONAL), start_of(CONVOLUTIONAL)
    first, before = updates(one, start, JOBS), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.manual_seed(99)
        with torch.no_grad():
            assert updates(one, start, JOBS).tobytes() == first.tobytes()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_start_model_is_unchanged_and_may_be_read_only() -> None:
    one, start = trainer(BRANCHED), start_of(BRANCHED)
    kept = start.copy()
    first = updates(one, start, JOBS)
    start.flags.writeable = False
    assert updates(one, start, JOBS).tobytes() == first.tobytes()
    assert np.array_equal(start, kept)


def test_what_is_frozen_or_unused_is_not_moved() -> None:
    module = BRANCHED.module()
    update = updates(trainer(BRANCHED), start_of(BRANCHED), jobs(0))[0]
    load_vector(module, torch.tensor(update))
    parts = dict(module.named_parameters())
    assert "frozen" not in dict(BRANCHED.layout)
    assert parts["unused"].tolist() == [0, 0, 0]
    assert all(bool(parts[name].any()) for name, _ in BRANCHED.layout if name != "unused")


def test_diverging_training_yields_non_finite_numbers() -> None:
    wild = LocalTraining(learning_rate=1e30, batch_size=16, local_steps=5)
    one, start = trainer(CONVOLUTIONAL, wild), start_of(CONVOLUTIONAL)
    first = updates(one, start, JOBS[:2])
    assert not np.isfinite(first).all()
    # What one client comes to spoils nobody else's.
    assert updates(one, start, JOBS[:2][::-1])[::-1].tobytes() == first.tobytes()


@BOTH
def test_batches_resident_on_a_device_equal_freshly_collated_ones(training: LocalTraining) -> None:
    work = work_of(BRANCHED, DATA.train, DATA.collate, training)
    resident = ResidentBatches(work, torch.device("cpu"))
    for job in JOBS:
        pairs = zip(CollatedBatches(work).of(job), resident.of(job), strict=True)
        for (x, y), (resident_x, resident_y) in pairs:
            assert torch.equal(x, resident_x)
            assert torch.equal(y, resident_y)
            assert x.dtype == torch.float32
            assert y.dtype == torch.int64


def update(model: Model, training: LocalTraining, job: TrainingJob) -> NDArray[np.float32]:
    row = np.empty(model.dimension, dtype=np.float32)
    start = start_of(model)
    PlainTrainer(work_of(model, DATA.train, DATA.collate, training, "cpu")).train(
        start, [job], [row]
    )
    return row


def pencil_update(steps: int, proximal: float | None) -> NDArray[np.float32]:
    """Return the update of W = b = 0 on one sample x = 3 of class 1, at the rate 1/2."""
    sample = frozen_samples(np.full((1, 1, 1, 1), 3.0, dtype=np.float32), np.array([1]))
    model = model_named("softmax", DataForm((1, 1, 1), 2), {})
    training = LocalTraining(learning_rate=0.5, batch_size=8, local_steps=steps, proximal=proximal)
    row = np.empty(4, dtype=np.float32)
    trainer = PlainTrainer(work_of(model, [sample], as_stored, training, "cpu"))
    trainer.train(np.zeros(4, dtype=np.float32), [TrainingJob(0, bytes(32))], [row])
    return row


def test_the_first_step_is_sgd_and_the_second_pulled_back() -> None:
    first = [0.75, -0.75, 0.25, -0.25]
    assert pencil_update(1, None).tolist() == pencil_update(1, 0.25).tolist() == first
    # Both have the same gradient at w_1 = -first; the term adds mu w_1 to it: Delta_2 loses
    # rate mu first = first / 8.
    lost = pencil_update(2, None) - pencil_update(2, 0.25)
    assert np.allclose(lost, np.array(first) / 8, rtol=0, atol=1e-7)


@pytest.mark.parametrize("model", [BRANCHED, CONVOLUTIONAL], ids=["branched", "cnn"])
@pytest.mark.parametrize("training", [SETTINGS, EPOCHS], ids=["steps", "epochs"])
def test_an_update_descends_the_regularised_loss_in_float64(model: Model, training: Any) -> None:
    near = training.model_copy(update={"proximal": 0.7})
    train = tuple(frozen_samples(DATA.collate(x), y) for x, y in DATA.train)
    for job in JOBS[:2]:
        exact = exact_update(model, start_of(model), job, near, train)
        found = update(model, near, job)
        # float32 beside float64; without the term they are apart by more than a hundred times.
        assert np.linalg.norm(found - exact) < 1e-4 * np.linalg.norm(exact)
        plain = update(model, training, job)
        assert np.linalg.norm(plain - exact) > 1e-2 * np.linalg.norm(exact)


def test_only_the_plain_path_takes_such_steps() -> None:
    near = SETTINGS.model_copy(update={"proximal": 0.1})
    assert plan(CONVOLUTIONAL, DATA, SETTINGS, "cpu").path == "lockstep"
    found = plan(CONVOLUTIONAL, DATA, near, "cpu")
    assert (found.path, found.layers) == ("plain", ())
    assert found.reason == "training.proximal is set, and lockstep takes steps of plain SGD alone"
    with pytest.raises(ConfigurationError, match=f"training.path = 'lockstep': {found.reason}"):
        LockstepTrainer(work_of(CONVOLUTIONAL, DATA.train, DATA.collate, near, "cpu"))


def test_the_term_is_recorded_only_where_set() -> None:
    plain, near = load("smoke"), load("smoke", settings=("training.proximal=0.5",))
    assert "proximal" not in plain.recorded()["training"]
    assert "proximal" not in plain.to_toml()
    assert near.recorded()["training"] == plain.recorded()["training"] | {"proximal": 0.5}
    assert near.training == plain.training.model_copy(update={"proximal": 0.5})
    assert checked(near.model_dump(exclude_none=True)) == near


@pytest.mark.parametrize("value", ["0", "-0.1", "inf", "nan"])
def test_a_nonpositive_weight_of_the_term_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"proximal = .*: must be above 0"):
        load("smoke", settings=(f"training.proximal={value}",))


def test_a_chain_of_known_layers_trains_in_lockstep() -> None:
    found = plan(CONVOLUTIONAL, DATA, SETTINGS, "cpu")
    assert found.path == "lockstep"
    assert found.reason == "10 clients take each step at once"
    assert found.layers == (
        "convolution 1 to 8, 3 × 3: one matrix for each client, in one call",
        "convolution 8 to 16, 3 × 3: one matrix for each client, in one call",
        "linear 256 to 10: one matrix for each client, in one call",
    )
    trainer = LockstepTrainer(work_of(CONVOLUTIONAL, DATA.train, DATA.collate, SETTINGS, "cpu"))
    assert trainer.chunk == 10


def test_a_module_with_anything_else_takes_the_plain_path_whole() -> None:
    found = plan(BRANCHED, DATA, SETTINGS, "cpu")
    assert found.path == "plain"
    assert "takes more than the previous layer's output" in found.reason or (
        "not a supported layer" in found.reason
    )
    assert found.layers == ()


def test_an_lstm_stays_as_it_is() -> None:
    form = DataForm((20,), 80, input_dtype="int64", vocabulary=80)
    model = model_named("shakespeare_lstm", form, {"hidden": 4})
    found = plan(model, replace(DATA, form=form), SETTINGS, "cpu")
    assert (found.path, found.reason) == ("plain", "its inputs are int64")


CALIBRATED = SETTINGS.model_copy(update={"calibrated": True})
TRAINERS = pytest.mark.parametrize("trainer", [PlainTrainer, LockstepTrainer])
Trainer = type[PlainTrainer] | type[LockstepTrainer]


def test_a_shift_counts_labels_and_leaves_out_ignored_ones() -> None:
    labels = np.array([[2, 0, NO_TARGET], [2, NO_TARGET, NO_TARGET]])
    expected = np.log(np.array([1.1, 0.1, 2.1, 0.1])).astype(np.float32)
    found = class_shift(labels, 4)
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


@TRAINERS
def test_calibrated_one_step_by_pencil(trainer: Trainer) -> None:
    # W = b = 0; x = 1, 2 of class 0 and x = 3 of class 1. The logits log 2.1 and log 1.1 give the
    # probabilities 21/32 and 11/32. So the gradients are 10/32 for W_0 and -1/96 for b_0.
    inputs = np.array([1, 2, 3], dtype=np.float32).reshape(3, 1, 1, 1)
    model = model_named("softmax", DataForm((1, 1, 1), 2), {})
    step = LocalTraining(learning_rate=0.5, batch_size=3, local_steps=1, calibrated=True)
    one = trainer(work_of(model, [frozen_samples(inputs, np.array([0, 0, 1]))], as_stored, step))
    (found,) = updates(one, np.zeros(4, dtype=np.float32), [TrainingJob(0, bytes(32))])
    expected = [5 / 32, -5 / 32, -1 / 192, 1 / 192]
    assert np.allclose(found, expected, rtol=0, atol=1e-7)


@TRAINERS
def test_an_update_descends_the_calibrated_loss_in_float64(trainer: Trainer) -> None:
    start = start_of(CONVOLUTIONAL)
    train = tuple(frozen_samples(DATA.collate(x), y) for x, y in DATA.train)
    found = updates(trainer(work_of(CONVOLUTIONAL, train, as_stored, CALIBRATED)), start, JOBS)
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
            PlainTrainer(work_of(model, [samples], as_stored, training, "cpu")),
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
    one = trainer(work_of(model, data.train, DATA.collate, CALIBRATED))
    (found,) = updates(one, start, [TrainingJob(0, bytes(32))])
    train = [frozen_samples(DATA.collate(x), y) for x, y in data.train]
    exact = exact_update(model, start, TrainingJob(0, bytes(32)), CALIBRATED, train)
    assert error(found, exact) < 1e-5


@pytest.mark.parametrize("task", ["regress", "causal-lm", "masked-lm"])
@TRAINERS
def test_a_task_without_class_labels_is_refused_by_name(trainer: Trainer, task: Task) -> None:
    model = replace(BRANCHED, form=replace(BRANCHED.form, task=task))
    with pytest.raises(ConfigurationError, match=rf"training\.calibrated = true: .* {task}$"):
        trainer(work_of(model, DATA.train, DATA.collate, CALIBRATED))
