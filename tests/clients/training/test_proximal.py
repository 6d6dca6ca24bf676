"""FedProx: every local step is drawn back to the global model, on the plain path alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.configuration.loading import checked, load
from clients.datasets.federated_data import DataForm, as_stored, frozen_samples
from clients.local_sgd import LocalTraining
from clients.models.registry import model_named
from clients.runs.population import populate, with_training_path
from clients.training.lockstep.execution_plan import plan
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.port import TrainingJob
from ledger.protocol.errors import ConfigurationError
from tests.clients.training.lockstep.support import exact_update
from tests.clients.training.made import (
    BRANCHED,
    CONVOLUTIONAL,
    DATA,
    EPOCHS,
    JOBS,
    SETTINGS,
    start_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clients.models.model import Model


def update(model: Model, training: LocalTraining, job: TrainingJob) -> NDArray[np.float32]:
    row = np.empty(model.dimension, dtype=np.float32)
    start = start_of(model)
    PlainTrainer(model, DATA.train, DATA.collate, training, "cpu").train(start, [job], [row])
    return row


def pencil_update(steps: int, proximal: float | None) -> NDArray[np.float32]:
    """Return the update of W = b = 0 on one sample x = 3 of class 1, at the rate 1/2."""
    sample = frozen_samples(np.full((1, 1, 1, 1), 3.0, dtype=np.float32), np.array([1]))
    model = model_named("softmax", DataForm((1, 1, 1), 2), {})
    training = LocalTraining(learning_rate=0.5, batch_size=8, local_steps=steps, proximal=proximal)
    row = np.empty(4, dtype=np.float32)
    trainer = PlainTrainer(model, [sample], as_stored, training, "cpu")
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
def test_an_update_descends_the_regularised_loss_in_float64(
    model: Model, training: LocalTraining
) -> None:
    near = replace(training, proximal=0.7)
    train = tuple(frozen_samples(DATA.collate(x), y) for x, y in DATA.train)
    for job in JOBS[:2]:
        exact = exact_update(model, start_of(model), job, near, train)
        found = update(model, near, job)
        # float32 beside float64; without the term they are apart by more than a hundred times.
        assert np.linalg.norm(found - exact) < 1e-4 * np.linalg.norm(exact)
        plain = update(model, training, job)
        assert np.linalg.norm(plain - exact) > 1e-2 * np.linalg.norm(exact)


def test_only_the_plain_path_takes_such_steps() -> None:
    near = replace(SETTINGS, proximal=0.1)
    assert plan(CONVOLUTIONAL, DATA, SETTINGS, "cpu").path == "lockstep"
    found = plan(CONVOLUTIONAL, DATA, near, "cpu")
    assert (found.path, found.layers) == ("plain", ())
    assert found.reason == "training.proximal is set, and lockstep takes steps of plain SGD alone"
    with pytest.raises(ConfigurationError, match=f"training.path = 'lockstep': {found.reason}"):
        LockstepTrainer(CONVOLUTIONAL, DATA.train, DATA.collate, near, "cpu")


def test_a_run_takes_the_plain_path_or_refuses_the_other() -> None:
    chosen = load("smoke", settings=("training.proximal=0.1",))
    population = populate(chosen)
    assert with_training_path(chosen, population).training.path == "plain"
    asked = load("smoke", settings=("training.proximal=0.1", "training.path=lockstep"))
    with pytest.raises(ConfigurationError, match=r"path = lockstep: training\.proximal is set"):
        with_training_path(asked, population)


def test_the_term_is_recorded_only_where_set() -> None:
    plain, near = load("smoke"), load("smoke", settings=("training.proximal=0.5",))
    assert "proximal" not in plain.recorded()["training"]
    assert "proximal" not in plain.to_toml()
    assert near.recorded()["training"] == plain.recorded()["training"] | {"proximal": 0.5}
    assert near.local_training() == replace(plain.local_training(), proximal=0.5)
    assert checked(near.model_dump(exclude_none=True)) == near


@pytest.mark.parametrize("value", ["0", "-0.1", "inf", "nan"])
def test_a_nonpositive_weight_of_the_term_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"proximal = .*: must be above 0"):
        load("smoke", settings=(f"training.proximal={value}",))
