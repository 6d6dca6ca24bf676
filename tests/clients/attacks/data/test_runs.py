"""Runs whose malicious clients poison what they train on: what is changed, measured, recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.adversaries.faults import FAVOURS
from clients.attacks.data.registry import DATA_ATTACKS
from clients.configuration.loading import load
from clients.runs.evaluation_sets import BACKDOOR, TEST, TRAINING, measured_sets
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate, run_document
from clients.training.evaluation import evaluate
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from pathlib import Path

ATTACKED = ("machine.ledger=memory", "malice.malicious_rate=0.3", "protocol.rounds=3")


def test_rows_report_backdoor_success_and_null_if_unmeasured(tmp_path: Path) -> None:
    settings = (*ATTACKED, "malice.attack=backdoor", "evaluation.every=2")
    with open_memory_run(tmp_path, "run", load("smoke", settings=settings)) as run:
        rows = run.go_on(lambda _: None)
        model, clean = run.population.model, run.population.clean
        marked = measured_sets(clean, run.configuration.evaluation, 0, DATA_ATTACKS["backdoor"])
        found = evaluate(model, run.simulation.model, marked[BACKDOOR], clean.collate)
        written = [json.loads(line) for line in run.folder.metrics_lines()]
    assert [row.backdoor_success is None for row in rows] == [True, False, False]
    assert found.correct is not None
    assert rows[-1].backdoor_success == found.correct / found.samples
    assert [row["backdoor_success"] for row in written] == [row.backdoor_success for row in rows]
    assert found.samples == np.count_nonzero(clean.test.y)


@pytest.mark.parametrize("attack", ["label-flip", "back-gradient"])
def test_without_a_backdoor_there_is_no_success(tmp_path: Path, attack: str) -> None:
    settings = (*ATTACKED, f"malice.attack={attack}", "protocol.rounds=1")
    with open_memory_run(tmp_path, "run", load("smoke", settings=settings)) as run:
        (row,) = run.go_on(lambda _: None)
    assert isinstance(row, RoundMetrics)
    assert row.backdoor_success is None
    assert row.accuracy is not None


def test_malicious_samples_are_poisoned_but_measured_clean() -> None:
    settings = (*ATTACKED, "malice.attack=label-flip", "evaluation.training_loss=true")
    configuration = load("smoke", settings=settings)
    population, honest = populate(configuration), populate(load("smoke"))
    assert len(population.malicious) == 4
    for client in range(12):
        own, before = population.data.train[client], honest.data.train[client]
        flipped = ClientId(client) in population.malicious
        assert np.array_equal(own.y, 9 - before.y if flipped else before.y)
    assert population.attackers.attack is None, "what they send is what they have trained"
    measured = measured_sets(population.clean, configuration.evaluation, 0, population.data_attack)
    assert list(measured) == [TEST, TRAINING]
    labels = np.concatenate([samples.y for samples in honest.data.train])
    assert np.array_equal(measured[TRAINING].y, labels)


def test_the_record_has_the_clean_digest_and_the_attacks_share() -> None:
    settings = (*ATTACKED, "malice.attack=backdoor", "malice.factor=0.25")
    configuration = load("smoke", settings=settings)
    document = run_document(configuration, populate(configuration))
    honest = load("smoke", settings=ATTACKED[2:])
    clean = run_document(honest, populate(honest))
    assert document.experiment["data"] == clean.experiment["data"]
    assert document.registry == clean.registry, "nobody gains weight by poisoning"
    assert document.experiment["malice"] == {
        "attack": "backdoor",
        "malicious_rate": 0.3,
        "factor": 0.25,
        "members": {},
        "trainers": {},
    }


def test_members_favour_the_malicious_or_else_one_another() -> None:
    faults = ("malice.members.colluding=2", "malice.members.favouring=1", "malice.members.silent=1")
    attacked = populate(load("smoke", settings=(*ATTACKED, "malice.attack=alie", *faults)))
    assert attacked.favoured == attacked.malicious
    assert not attacked.favoured.intersection(attacked.member_faults)
    alone = populate(load("smoke", settings=faults))
    kinds = {client: fault for client, fault in alone.member_faults.items() if fault in FAVOURS}
    assert alone.favoured == set(kinds)
    assert len(kinds) == 3
    assert populate(load("smoke")).favoured == frozenset()
