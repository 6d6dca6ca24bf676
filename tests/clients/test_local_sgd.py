"""One client's training: settings, batch order, steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clients.datasets.federated import frozen_samples
from clients.local_sgd import (
    LocalTrainer,
    LocalTraining,
    TrainingJob,
    batches,
)
from clients.models.softmax import SoftmaxRegression
from ledger.protocol.errors import ConfigurationError

SEED = bytes(range(32))


def steps(count: int, batch_size: int) -> LocalTraining:
    return LocalTraining(learning_rate=0.5, batch_size=batch_size, local_steps=count)


def epochs(count: int, batch_size: int) -> LocalTraining:
    return LocalTraining(learning_rate=0.5, batch_size=batch_size, local_epochs=count)


def test_steps_go_through_all_samples_before_any_comes_again() -> None:
    taken = list(batches(SEED, 10, steps(5, 4)))
    assert [len(batch) for batch in taken] == [4] * 5
    joined = np.concatenate(taken)
    assert sorted(joined[:10]) == sorted(joined[10:]) == list(range(10))


def test_epochs_keep_the_short_last_batch() -> None:
    taken = list(batches(SEED, 10, epochs(2, 4)))
    assert [len(batch) for batch in taken] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate(taken[:3])) == list(range(10))


def test_a_client_with_fewer_samples_than_a_batch_uses_what_it_has() -> None:
    assert [sorted(batch) for batch in batches(SEED, 2, steps(3, 32))] == [[0, 1]] * 3
    assert [sorted(batch) for batch in batches(SEED, 2, epochs(1, 32))] == [[0, 1]]


def test_the_order_follows_from_the_seed() -> None:
    def order(seed: bytes) -> list[int]:
        return [int(i) for batch in batches(seed, 50, steps(5, 10)) for i in batch]

    assert order(SEED) == order(SEED)
    assert order(SEED) != order(bytes(32))


@pytest.mark.parametrize(
    ("setting", "fact"),
    [
        ({"learning_rate": 0.0}, "learning_rate = 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"local_steps": 0}, "local_steps = 0"),
        ({"local_epochs": 1}, "exactly one"),
        ({"local_steps": None}, "exactly one"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], fact: str) -> None:
    good: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 8, "local_steps": 5}
    assert LocalTraining(**good).local_steps == 5
    with pytest.raises(ConfigurationError, match=fact):
        LocalTraining(**{**good, **setting})


def test_one_step_by_pencil() -> None:
    # W = b = 0, one sample x = 3 of class 1: gradient (1.5, -1.5, 0.5, -0.5), rate 1/2.
    # Δ = w_start − w_end is the rate times the gradient.
    sample = frozen_samples(np.full((1, 1, 1, 1), 3.0, dtype=np.float32), np.array([1]))
    trainer = LocalTrainer(SoftmaxRegression((1, 1, 1), 2), [sample], steps(1, 8), "cpu")
    updates = trainer.updates(np.zeros(4, dtype=np.float32), [TrainingJob(0, SEED)])
    assert updates.tolist() == [[0.75, -0.75, 0.25, -0.25]]
