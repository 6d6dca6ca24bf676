"""What is measured of a run, how often, from which samples, and runs that end by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clients.configuration.loading import checked, load, shared_configuration
from clients.configuration.schema import EvaluationSection
from clients.datasets.federated_data import DataForm, FederatedData, Samples, frozen_samples
from clients.runs.metrics import TEST, TRAINING, client_set, measured_sets
from clients.runs.open_run import open_memory_run
from clients.training.jobs import evaluate
from ledger.claims import EarlyStopRule
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import Digest
from tests.clients.experiments.minis import plan_of
from tests.clients.played import Player, configured, require_refused


def samples(count: int) -> Samples:
    return frozen_samples(np.arange(count, dtype=np.float32)[:, None], np.zeros(count, np.int64))


def data(*tests: int) -> FederatedData:
    train, own = (samples(2), samples(3)), tuple(samples(count) for count in tests)
    return FederatedData("made", DataForm((1,), 2), train, samples(10), own or None)


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
    assert played.rows[-1].training_loss == pytest.approx(mean, rel=1e-6)


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


# No model improves by more than 1, so that the second evaluation ends the run.
STOPPING = ("protocol.rounds=6", "early_stop.patience=1", "early_stop.min_delta=1.0")


def test_a_run_ends_by_its_rule_and_stays_ended(player: Player) -> None:
    played = player.play(*STOPPING)
    assert [row.round for row in played.rows] == [1, 2]
    assert played.ledger.state().round == 3
    model = played.run.folder.read_model()
    assert model is not None
    rows, head = player.metrics(), played.head
    again = player.play(*STOPPING)
    assert (again.rows, again.head, player.metrics()) == ([], head, rows)


def test_rows_that_were_lost_end_the_run_again(player: Player) -> None:
    played = player.play(*STOPPING)
    rows = player.metrics()
    played.run.folder.paths.metrics.write_bytes(rows.splitlines(keepends=True)[0])
    assert player.play(*STOPPING).rows == []
    assert player.metrics() == rows


def test_only_evaluations_count(tmp_path: Path) -> None:
    with open_memory_run(tmp_path, "run", configured(*STOPPING, "evaluation.every=2")) as run:
        rows = run.go_on(lambda _: None)
    assert [row.round for row in rows] == [1, 2, 3, 4]


def test_the_run_document_has_the_rule_and_what_is_measured(player: Player) -> None:
    played = player.play(*STOPPING, "protocol.rounds=1", "evaluation.samples=64")
    assert played.run.manifest is not None
    config = Digest(bytes.fromhex(played.run.manifest.config[2:]))
    document = decode_run(player.blobs.get(config))
    assert EarlyStopRule.of(document.experiment) == EarlyStopRule(
        "accuracy", patience=1, min_delta=1.0
    )
    assert document.experiment["evaluation"]["samples"] == 64


def test_without_a_rule_documents_and_files_are_as_before() -> None:
    plain = load("smoke")
    assert not {"early_stop", "evaluation"} & plain.recorded().keys()
    assert "early_stop" not in plain.to_toml()
    ruled = load("smoke", settings=STOPPING[1:])
    assert ruled.recorded() == plain.recorded() | {
        "early_stop": {"metric": "accuracy", "patience": 1, "min_delta": 1.0},
        "evaluation": {"every": 1, "training_loss": False, "per_client": False},
    }
    assert checked(ruled.model_dump(exclude_none=True)) == ruled


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("early_stop.metric=loss",), "early_stop.metric"),
        (("early_stop.min_delta=0.1", "early_stop.target=0.9"), "early_stop.min_delta"),
        (("early_stop.target=1.5",), "early_stop.target = 1.5"),
        (("early_stop.patience=0",), "early_stop.patience"),
    ],
)
def test_a_rule_that_has_no_effect_is_refused(settings: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load("smoke", settings=settings)
    by_loss = load("smoke", settings=("early_stop.metric=loss", "early_stop.target=1.5"))
    assert by_loss.early_stop.rule() == EarlyStopRule("loss", target=1.5)


def test_owners_and_experiments_cannot_stop_early() -> None:
    with pytest.raises(ConfigurationError, match="early_stop: applies to `cmfl run` only"):
        shared_configuration("smoke", settings=STOPPING)
    with pytest.raises(ConfigurationError, match="early_stop: applies to `cmfl run` only"):
        plan_of(("settings = [", 'settings = ["early_stop.target=0.5", '))


def test_a_regression_has_no_accuracy_to_stop_by(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{x},{2 * x}\n" for x in range(60)))
    table = ("data.options.task=regress", f"data.path={tmp_path / 'rows.csv'}")
    settings = (*table, "training.learning_rate=0.0001", "early_stop.target=0.5")
    require_refused(tmp_path, load("smoke", settings=settings), "a regression has a loss alone")
    by_loss = load("smoke", settings=(*settings, "early_stop.metric=loss", "early_stop.target=1e9"))
    with open_memory_run(tmp_path, "run", by_loss) as run:
        assert len(run.go_on(lambda _: None)) == 1
