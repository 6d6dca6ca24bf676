"""One client's training: settings, batch order, how much it is, and named streams of chance."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from clients.datasets.federated_data import named_stream
from clients.training.plain_trainer import batches, permutations
from clients.training.port import LocalTraining
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


def test_a_client_with_fewer_samples_than_a_batch_uses_all() -> None:
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
        ({"batch_size": 0}, "batch_size = 0"),
        ({"local_steps": 0}, "local_steps = 0"),
        ({"local_steps": None}, "exactly one"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], fact: str) -> None:
    good: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 8, "local_steps": 5}
    assert LocalTraining(**good).local_steps == 5
    with pytest.raises(ConfigurationError, match=fact):
        LocalTraining(**{**good, **setting})


@pytest.mark.parametrize(
    ("settings", "samples"),
    [(steps(5, 4), 10), (steps(3, 32), 2), (epochs(2, 4), 10), (epochs(1, 32), 2)],
)
def test_training_uses_as_many_samples_as_its_batches_hold(settings: Any, samples: int) -> None:
    held = sum(len(batch) for batch in batches(SEED, samples, settings))
    assert settings.samples_gone_through(samples) == held


def test_a_stream_follows_from_its_seed_and_name_alone() -> None:
    first = named_stream(7, "attack", 3).random(4)
    assert np.array_equal(first, named_stream(7, "attack", 3).random(4))
    for other in (named_stream(8, "attack", 3), named_stream(7, "attack", 4)):
        assert not np.array_equal(first, other.random(4))


def test_names_are_not_run_together() -> None:
    assert named_stream(1, "ab", "c").random() != named_stream(1, "a", "bc").random()
    assert named_stream(1, "1").random() != named_stream(1, 1).random()


def test_permutations_hold_every_index_and_never_change_for_a_seed() -> None:
    first, second = islice(permutations(bytes(32), 5), 2)
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert [first.tolist(), second.tolist()] == [[3, 2, 1, 0, 4], [3, 1, 2, 0, 4]]
