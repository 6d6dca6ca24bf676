"""The lockstep path: steps and losses of the plain path, the same bytes in any company."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from torch import nn

from clients.datasets.federated_data import DataForm, as_stored, frozen_samples
from clients.local_sgd import LocalTraining, step_count
from clients.models.model import model_of
from clients.models.registry import model_named
from clients.training.engine_factory import open_engine
from clients.training.lockstep import execution_plan
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from ledger.protocol.errors import ConfigurationError
from tests.clients.training.lockstep.support import (
    CALIBRATED,
    EPOCHS,
    FORM,
    JOBS,
    SIZES,
    STEPS,
    TRAIN,
    both,
    error,
    exact_update,
    samples,
    sequential,
    updates,
)
from tests.clients.training.made import DATA, SETTINGS
from tests.clients.training.made import JOBS as MADE_JOBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clients.models.model import Model
    from clients.training.port import TrainingJob, TrainingPath


def convolutional(hidden: int) -> Model:
    return sequential(
        nn.Conv2d(1, 4, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=1, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(24, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10, bias=False),
    )


MODELS = {
    "softmax": model_named("softmax", FORM),
    "cnn": model_named("cnn", FORM),
    "convolutional": convolutional(40),
    "without biases": sequential(
        nn.Conv2d(1, 3, (3, 2), stride=2, dilation=(1, 2), bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 30, bias=False),
        nn.ReLU(),
        nn.Linear(30, 10),
    ),
}


def seen_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small models be computed as large ones are: as right, and quicker to test."""
    monkeypatch.setattr(execution_plan, "SMALL", 0)
    monkeypatch.setattr(execution_plan, "_LARGE_MATRIX", 500)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        seen_as_large(monkeypatch)
    return str(request.param)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(
    "settings", [STEPS, EPOCHS, CALIBRATED], ids=["steps", "epochs", "calibrated"]
)
@pytest.mark.parametrize("name", MODELS)
def test_an_update_equals_plain_path_and_float64(name: str, settings: LocalTraining) -> None:
    model = MODELS[name]
    lockstep, plain = both(model, settings)
    start = model.initial(np.random.default_rng(5))
    # Of all in lockstep, those of 30, 3, 7, 1 and 5 samples: more and fewer than a batch, and not
    # all clients by the two paths that take them one by one.
    some = [2, 3, 5, 6, 9]
    compared = [JOBS[client] for client in some]
    found, expected = updates(lockstep, start, JOBS)[some], updates(plain, start, compared)
    for job, one, other in zip(compared, found, expected, strict=True):
        exact = exact_update(model, start, job, settings)
        # Both round to float32 some hundred times; none of these numbers is near a kink.
        assert error(one, other) < 2e-5
        assert error(one, exact) < 1e-5


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(
    "settings", [STEPS, EPOCHS, CALIBRATED], ids=["steps", "epochs", "calibrated"]
)
@pytest.mark.parametrize("name", ["cnn", "convolutional"])
def test_the_bytes_do_not_depend_on_the_chunk(name: str, settings: LocalTraining) -> None:
    model = MODELS[name]
    trainer, _ = both(model, settings)
    start = model.initial(np.random.default_rng(5))
    full = trainer.chunk
    assert 1 < full < len(JOBS)
    expected = updates(trainer, start, JOBS)
    for chunk in (1, 5):
        trainer.chunk = chunk
        assert updates(trainer, start, JOBS).tobytes() == expected.tobytes()
    trainer.chunk = full
    assert updates(trainer, start, JOBS[::-1])[::-1].tobytes() == expected.tobytes()
    some = [4, 2, 11]
    odd = updates(trainer, start, [JOBS[client] for client in some])
    assert odd.tobytes() == expected[some].tobytes()


def test_a_large_matrix_gives_the_same_bytes_in_any_chunk() -> None:
    # The sizes of a real model: here a product of fewer rows does sum in another order.
    form = DataForm((1100,), 10)
    train = [samples(12, seed, form) for seed in range(12)]
    model = model_of(_wide, form)
    settings = LocalTraining(learning_rate=0.1, batch_size=10, local_steps=2)
    trainer = LockstepTrainer(model, train, as_stored, settings, "cpu")
    assert trainer.chunk == 10
    start = model.initial(np.random.default_rng(0))
    expected = updates(trainer, start, JOBS)
    for chunk in (1, 2, 5):
        trainer.chunk = chunk
        assert updates(trainer, start, JOBS[3:9]).tobytes() == expected[3:9].tobytes()
    plain = updates(PlainTrainer(model, train, as_stored, settings, "cpu"), start, JOBS)
    # A ReLU whose input is nearly 0 may open on one path alone.
    assert np.median([error(a, b) for a, b in zip(expected, plain, strict=True)]) < 1e-5


def _wide(form: DataForm, _options: object) -> nn.Module:
    return nn.Sequential(
        nn.Linear(form.input_shape[0], 2050), nn.ReLU(), nn.Linear(2050, form.classes)
    )


def test_rows_may_lie_anywhere_and_the_start_is_left_alone() -> None:
    model = MODELS["softmax"]
    trainer, _ = both(model, STEPS)
    start = model.initial(np.random.default_rng(5))
    expected, kept = updates(trainer, start, JOBS), start.copy()
    start.setflags(write=False)
    memory = np.full((len(JOBS), len(start) + 3), 7, dtype=np.float32)
    trainer.train(start, JOBS, [row[1:-2] for row in memory])
    assert np.array_equal(memory[:, 1:-2], expected)
    assert (memory[:, 0] == 7).all()
    assert (memory[:, -2:] == 7).all()
    assert np.array_equal(start, kept)


def test_a_client_that_diverges_changes_nobody_else() -> None:
    model = MODELS["convolutional"]
    wild = frozen_samples(np.full((9, 1, 8, 8), 1e30, dtype=np.float32), TRAIN[0].y)
    one, _ = both(model, EPOCHS)
    other, _ = both(model, EPOCHS, (wild, *TRAIN[1:]))
    start = model.initial(np.random.default_rng(5))
    calm, mixed = updates(one, start, JOBS), updates(other, start, JOBS)
    assert not np.isfinite(mixed[0]).all()
    assert np.isfinite(calm).all()
    assert calm[1:].tobytes() == mixed[1:].tobytes()


def test_many_steps_are_staged_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["softmax"]
    start = model.initial(np.random.default_rng(5))
    at_once = updates(both(model, EPOCHS)[0], start, JOBS)
    monkeypatch.setattr("clients.training.lockstep.staging._STAGED_BYTES", 40_000)
    assert updates(both(model, EPOCHS)[0], start, JOBS).tobytes() == at_once.tobytes()


def test_unknown_layer_of_a_module_is_named_in_the_refusal() -> None:
    model = sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    with pytest.raises(ConfigurationError, match="'lockstep': 2 is a Tanh"):
        LockstepTrainer(model, TRAIN, as_stored, STEPS, "cpu")


CNN = model_named("cnn", FORM)
START = CNN.initial(np.random.default_rng(5))
BOTH = pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["steps", "epochs"])


def with_losses(
    trainer: LockstepTrainer | PlainTrainer, settings: LocalTraining, jobs: Sequence[TrainingJob]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    rows = np.zeros((len(jobs), len(START)), dtype=np.float32)
    sizes = [step_count(SIZES[job.client], settings) for job in jobs]
    losses = [np.full(size, np.nan, np.float32) for size in sizes]
    trainer.train(START, jobs, list(rows), losses)
    return rows, losses


@BOTH
def test_losses_change_no_update_and_agree_between_paths(settings: LocalTraining) -> None:
    found = []
    for trainer in both(CNN, settings):
        before = updates(trainer, START, JOBS)
        rows, losses = with_losses(trainer, settings, JOBS)
        assert rows.tobytes() == before.tobytes() == updates(trainer, START, JOBS).tobytes()
        found.append(np.concatenate(losses))
    lockstep, plain = found
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(lockstep, plain, rtol=1e-4)
    # The first loss of ten classes, before anything is learnt, is near log 10.
    assert abs(plain[0] - np.log(10)) < 1


@BOTH
def test_losses_do_not_depend_on_the_chunk(settings: LocalTraining) -> None:
    trainer, _ = both(CNN, settings)
    _, together = with_losses(trainer, settings, JOBS)
    for job, losses in zip(JOBS, together, strict=True):
        _, (alone,) = with_losses(trainer, settings, [job])
        assert alone.tobytes() == losses.tobytes()


@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_an_engine_gives_losses_where_they_are_asked_for(path: TrainingPath) -> None:
    model = model_named("cnn", DATA.form)
    start = model.initial(np.random.default_rng(5))
    found = []
    for asked in (True, False):
        with open_engine(
            model, DATA, SETTINGS,
            device="cpu", workers=1, path=path, sets={}, rows=1, records_losses=asked,
        ) as engine:  # fmt: skip
            (update,) = engine.train(start, MADE_JOBS[:1])
            found.append((bytes(update.payload.data), update.losses))
    (with_, losses), (without, none) = found
    assert with_ == without
    assert losses is not None
    assert len(losses) == 4 * step_count(len(DATA.train[0].y), SETTINGS)
    assert none is None


def test_an_update_depends_on_no_host_of_its_client() -> None:
    # Client 3 has fewer samples than a batch: the rows that fill it are those of the largest.
    alone = [part if client == 3 else TRAIN[0]._replace(x=TRAIN[0].x[:0], y=TRAIN[0].y[:0])
             for client, part in enumerate(TRAIN)]  # fmt: skip
    arguments = (CNN, alone, lambda rows: rows, EPOCHS, "cpu")
    hosted = LockstepTrainer(*arguments, SIZES)
    everybody, _ = both(CNN, EPOCHS)
    expected = updates(everybody, START, [JOBS[3]])
    assert updates(hosted, START, [JOBS[3]]).tobytes() == expected.tobytes()
    assert LockstepTrainer(*arguments).chunk == hosted.chunk
