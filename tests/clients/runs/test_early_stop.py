"""Runs that end by their early-stop rule: they stay ended, and others cannot have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import checked, load
from clients.configuration.owners import shared_configuration
from clients.runs.open_run import open_memory_run
from ledger.early_stop import EarlyStopRule
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest
from tests.clients.experiments.minis import plan_of
from tests.clients.played import configured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.played import Player

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
    played.run.folder.write_metrics(rows.splitlines(keepends=True)[:1])
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
    with pytest.raises(ConfigurationError, match="early_stop: only `cmfl run`"):
        shared_configuration("smoke", settings=STOPPING)
    with pytest.raises(ConfigurationError, match="early_stop: only `cmfl run`"):
        plan_of(("settings = [", 'settings = ["early_stop.target=0.5", '))


def test_a_regression_has_no_accuracy_to_stop_by(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{x},{2 * x}\n" for x in range(60)))
    table = ("data.options.task=regress", f"data.path={tmp_path / 'rows.csv'}")
    settings = (*table, "training.learning_rate=0.0001", "early_stop.target=0.5")
    with (
        pytest.raises(ConfigurationError, match="a regression has a loss alone"),
        open_memory_run(tmp_path, "run", load("smoke", settings=settings)),
    ):
        pass
    by_loss = load("smoke", settings=(*settings, "early_stop.metric=loss", "early_stop.target=1e9"))
    with open_memory_run(tmp_path, "run", by_loss) as run:
        assert len(run.go_on(lambda _: None)) == 1
