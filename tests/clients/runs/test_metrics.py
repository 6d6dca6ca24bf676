"""What is measured of a run beside its accuracy, how often, and from which samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.schema import EvaluationSection
from clients.datasets.federated_data import DataForm, FederatedData, Samples, frozen_samples
from clients.runs.evaluation_sets import TEST, TRAINING, client_set, measured_sets
from clients.training.evaluation import evaluate
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundDecided

if TYPE_CHECKING:
    from tests.clients.played import Player


def samples(count: int) -> Samples:
    return frozen_samples(np.arange(count, dtype=np.float32)[:, None], np.zeros(count, np.int64))


def data(*tests: int) -> FederatedData:
    train, own = (samples(2), samples(3)), tuple(samples(count) for count in tests)
    return FederatedData("made", DataForm((1,), 2), train, samples(10), own or None)


def test_the_whole_test_set_is_measured_where_nothing_is_said() -> None:
    (found,) = measured_sets(data(), EvaluationSection(), seed=1).items()
    assert found[0] == TEST
    assert found[1].x[:, 0].tolist() == list(range(10))


def test_a_subset_is_seeded_and_has_each_sample_once() -> None:
    section = EvaluationSection(samples=4)
    chosen = measured_sets(data(), section, seed=1)[TEST].x[:, 0].tolist()
    assert len(set(chosen)) == 4
    assert chosen == sorted(chosen)
    assert chosen == measured_sets(data(), section, seed=1)[TEST].x[:, 0].tolist()
    others = [measured_sets(data(), section, seed)[TEST].x[:, 0].tolist() for seed in range(2, 9)]
    assert any(other != chosen for other in others)


def test_a_subset_is_no_larger_than_the_test_set() -> None:
    assert len(measured_sets(data(), EvaluationSection(samples=10), 1)[TEST].y) == 10
    with pytest.raises(ConfigurationError, match="samples = 11: the test set has 10 samples"):
        measured_sets(data(), EvaluationSection(samples=11), 1)


def test_clients_without_test_samples_of_their_own_have_no_set() -> None:
    found = measured_sets(data(0, 2), EvaluationSection(per_client=True, training_loss=True), 1)
    assert {name: len(one.y) for name, one in found.items()} == {
        TEST: 10,
        TRAINING: 5,
        client_set(1): 2,
    }
    with pytest.raises(ConfigurationError, match="'made' have no test samples of their own"):
        measured_sets(data(), EvaluationSection(per_client=True), 1)


def test_every_other_round_is_measured_and_the_last_one_always(player: Player) -> None:
    settings = ("evaluation.every=2", "evaluation.training_loss=true", "evaluation.samples=100")
    played = player.play(*settings)
    measured = [row.round for row in played.rows if row.accuracy is not None]
    assert measured == [2, 4, 5]
    assert all(
        (row.loss is None) == (row.training_loss is None) == (row.accuracy is None)
        for row in played.rows
    )
    everybody = [
        evaluate(played.population.model, played.run.simulation.model, one)
        for one in played.population.data.train
    ]
    mean = sum(one.loss for one in everybody) / sum(one.samples for one in everybody)
    assert played.rows[-1].training_loss == pytest.approx(mean, rel=1e-12)


def test_rows_between_measured_ones_are_recomputed_without_their_model(player: Player) -> None:
    settings = ("evaluation.every=3",)
    player.play(*settings)
    before = player.metrics()
    path = player.home / "runs" / "run" / "metrics.jsonl"
    path.write_bytes(b"")
    for number in (1, 2, 4):
        event = player.ledger().outcomes(9)[-number].event
        assert isinstance(event, RoundDecided)
        player.blobs.remove(event.model)
    player.play(*settings)
    assert player.metrics() == before


def test_a_setting_of_the_evaluation_changes_no_head(player: Player) -> None:
    whole = player.play(name="one")
    other = player.play("evaluation.every=4", "evaluation.samples=7", name="two")
    decided = [one.decided(2) for one in (whole, other)]
    assert decided[0] is not None
    assert decided[1] is not None
    assert decided[0].model == decided[1].model
    assert whole.ledger.deployment() == other.ledger.deployment()
    assert load("smoke").evaluation == EvaluationSection()
