"""Which path a run's training takes."""

from __future__ import annotations

from dataclasses import replace

from clients.datasets.federated_data import DataForm
from clients.models.registry import model_named
from clients.training.lockstep.execution_plan import plan
from clients.training.lockstep.trainer import LockstepTrainer
from tests.clients.training.made import BRANCHED, CONVOLUTIONAL, DATA, SETTINGS


def test_a_chain_of_known_layers_trains_in_lockstep() -> None:
    found = plan(CONVOLUTIONAL, DATA, SETTINGS, "cpu")
    assert found.path == "lockstep"
    assert found.reason == "10 clients take each step at once"
    assert found.layers == (
        "convolution 1 to 8, 3 × 3: one matrix for each client, in one call",
        "convolution 8 to 16, 3 × 3: one matrix for each client, in one call",
        "linear 256 to 10: one matrix for each client, in one call",
    )
    trainer = LockstepTrainer(CONVOLUTIONAL, DATA.train, DATA.collate, SETTINGS, "cpu")
    assert trainer.chunk == 10


def test_a_module_with_anything_else_takes_the_plain_path_whole() -> None:
    found = plan(BRANCHED, DATA, SETTINGS, "cpu")
    assert found.path == "plain"
    assert "does not take the output of the layer before alone" in found.reason or (
        "not a supported layer" in found.reason
    )
    assert found.layers == ()


def test_an_lstm_stays_as_it_is() -> None:
    form = DataForm((20,), 80, input_dtype="int64", vocabulary=80)
    model = model_named("shakespeare_lstm", form, {"hidden": 4})
    found = plan(model, replace(DATA, form=form), SETTINGS, "cpu")
    assert (found.path, found.reason) == ("plain", "its inputs are int64")
