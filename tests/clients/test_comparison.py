"""All methods share everything but the method, and CMFL's runs are recorded."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from clients.comparison import Comparison, Trial
from clients.methods import METHODS, Committee
from clients.runs.existing_run import manifest_of
from ledger.audit.codes import AuditOutcome
from ledger.audit.engine import audit
from ledger.chain.contract.deployment import connect
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.ledger_state import RoundDecided
from ledger.storage.blobs import MemoryBlobs
from tests.clients.played import configured

if TYPE_CHECKING:
    from tests.clients.played import Player

ROUNDS = 2
SETTINGS = (
    f"protocol.rounds={ROUNDS}",
    "malice.attack=back-gradient",
    "malice.malicious_rate=0.3",
    "malice.members.false-scores=1",
)
BY_NAME = {method.name: method for method in METHODS}


@pytest.fixture
def comparison(player: Player) -> Comparison:
    return Comparison(player.home, player.chain, player.blobs, configured(*SETTINGS))


def test_each_method_runs_clean_and_attacked_and_each_recorded_run_passes_its_audit(
    player: Player, comparison: Comparison
) -> None:
    seen: list[str] = []
    outcomes = comparison.run([0], seen.append)
    assert {(o.method, o.attacked) for o in outcomes} == {
        (method, attacked) for method in BY_NAME for attacked in (True, False)
    }
    assert len(outcomes) == 2 * len(METHODS)
    assert len(seen) == 2 * len(METHODS) * ROUNDS
    assert seen[:3] == ["FedAvg-active-attacked-seed0"] * ROUNDS + [
        "FedAvg-trainers-attacked-seed0"
    ]
    for outcome in outcomes:
        method = BY_NAME[outcome.method]
        assert (outcome.run is not None) == isinstance(method, Committee)
        if outcome.run is None:
            continue
        assert isinstance(method, Committee)
        ledger = connect(player.chain, manifest_of(player.home, outcome.run))
        rules = method.configured(comparison.attacked).parameters(650)
        assert ledger.deployment().form is rules.form
        assert audit(ledger, player.blobs).outcome is AuditOutcome.PASSED


def test_only_attacked_runs_accept_attackers_and_all_have_one_floor(
    comparison: Comparison,
) -> None:
    attacked, clean, recorded = (
        comparison.one(Trial(BY_NAME[name], 0, attacked=is_attacked), lambda _: None)
        for name, is_attacked in (("FedAvg-active", True), ("FedAvg-active", False), ("I", False))
    )
    assert attacked.floor == clean.floor == recorded.floor
    assert 0 < recorded.floor < 0.15
    assert clean.malicious == recorded.malicious == 0
    # 4 of 12 clients attack, and 10 are active: in each round 2 to 4 of those averaged.
    assert 0.2 <= attacked.malicious <= 0.4


def test_a_run_is_the_same_as_one_of_its_configuration_alone(
    player: Player, comparison: Comparison
) -> None:
    whole = comparison.one(Trial(BY_NAME["I"], 0, attacked=True), lambda _: None)
    played = player.play(*SETTINGS)
    assert whole.accuracy == fmean(row.accuracy or 0.0 for row in played.rows)
    accepted = sum(len(row.accepted) for row in played.rows)
    assert whole.malicious == sum(row.malicious_accepted for row in played.rows) / accepted
    assert whole.floor == played.rows[0].floor


def test_an_outcome_counts_every_round_of_a_run_that_was_taken_up_again(
    comparison: Comparison,
) -> None:
    trial = Trial(BY_NAME["III"], 0, attacked=True)
    whole = comparison.one(trial, lambda _: None)
    seen: list[str] = []
    assert comparison.one(trial, seen.append) == whole
    assert seen == [], "all its rounds are on the ledger"


def test_a_run_whose_rows_cannot_all_be_made_again_is_not_compared(
    player: Player, comparison: Comparison
) -> None:
    trial = Trial(BY_NAME["I"], 0, attacked=False)
    comparison.one(trial, lambda _: None)
    event = player.ledger(trial.name).outcomes(1, descending=False)[0].event
    assert isinstance(event, RoundDecided)
    path = player.home / "runs" / trial.name / "metrics.jsonl"
    path.unlink()
    kept = MemoryBlobs()
    for digest in player.blobs.digests():
        if digest != event.model:
            kept.put(player.blobs.get(digest))
    said = f"run '{trial.name}' cannot be compared: the models of its rounds 1 are gone"
    with pytest.raises(BlobMissingError, match=said):
        replace(comparison, blobs=kept).one(trial, lambda _: None)
