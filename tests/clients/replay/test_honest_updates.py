"""Honest updates, repeated: the same bits on every path, with any model, and what prevents it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.models.tasks import class_shift
from clients.replay.recorded_updates import UpdateChoice
from clients.replay.replay_inputs import ReplaySource
from clients.replay.training_replay import ReplayOptions, replay_run
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.training_replay import replay_witness
from ledger.protocol.types import Address, ClientId, Digest
from tests.clients.replay.support import (
    CLEAN,
    NOT_CHECKABLE,
    OTHER,
    SAME,
    here,
    recorded_run,
    repeated,
)

if TYPE_CHECKING:
    from clients.replay.replayed_update import ReplayedUpdate, TrainingReplay
    from tests.clients.played import Played, Player

TWO_ROUNDS = ("protocol.rounds=2",)
FROZEN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, seed=3):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.fixed = nn.Linear(64, 16)
        self.fixed.weight.data = torch.randn(16, 64, generator=generator)
        self.fixed.requires_grad_(False)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.tanh(self.fixed(x.flatten(1))))
"""


def all_same(result: TrainingReplay) -> bool:
    return {update.verdict for update in result.updates} == {SAME}


@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_honest_updates_are_the_same_on_each_path(player: Player, path: str) -> None:
    played = player.play(*TWO_ROUNDS, f"training.path={path}")
    result = repeated(played)
    assert all_same(result)
    assert len(result.updates) == 20
    steps = played.configuration.training.local_steps or 0
    assert {len(update.losses or b"") for update in result.updates} == {4 * steps}


CALIBRATED = (*TWO_ROUNDS, "training.calibrated=true")


@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_calibrated_updates_are_repeated(player: Player, path: str) -> None:
    assert all_same(repeated(player.play(*CALIBRATED, f"training.path={path}")))


@pytest.mark.parametrize("module", ["plain_trainer", "lockstep.trainer"])
def test_false_class_counts_make_another_update(
    player: Player, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "plain" if module == "plain_trainer" else "lockstep"
    with monkeypatch.context() as patched:
        patched.setattr(
            f"clients.training.{module}.class_shift",
            lambda labels, classes: class_shift(labels[1:], classes),
        )
        played = player.play(*CALIBRATED, f"training.path={path}")
    assert {update.verdict for update in repeated(played).updates} == {OTHER}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_two_processes_give_the_same_bits_and_losses(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    assert repeated(played, workers=2).updates == repeated(played).updates


def test_a_model_with_a_frozen_layer_is_repeated(player: Player, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(FROZEN)
    played = player.play(*TWO_ROUNDS, f"model.name={file}:Net")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    copy = shutil.copy(file, moved)
    assert all_same(repeated(played, ReplaySource(settings=(f"model.name={copy}:Net",))))
    with pytest.raises(ConfigurationError, match=r"model\.name"):
        repeated(played)  # nobody runs code because a document names it
    Path(copy).write_text(FROZEN.replace("seed=3", "seed=4"))
    with pytest.raises(ConfigurationError, match="name a copy of the run's code"):
        repeated(played, ReplaySource(settings=(f"model.name={copy}:Net",)))


def forged(player: Player) -> Played:
    return player.play("protocol.rounds=1", "malice.attack=ipm", "malice.malicious_rate=0.4")


def attackers(played: Played, result: TrainingReplay) -> list[ReplayedUpdate]:
    malicious = played.population.malicious
    return [update for update in result.updates if update.client in malicious]


def test_other_bits_in_another_environment_are_not_checkable(player: Player) -> None:
    played = forged(player)
    elsewhere = replace(here(), isa="another")
    result = repeated(played, recorded=elsewhere)
    for update in attackers(played, result):
        assert update.verdict is NOT_CHECKABLE
        assert str(elsewhere) in update.reason
        assert update.difference is not None
        assert update.difference.spread is not None
    honest = [update for update in result.updates if update.verdict is SAME]
    assert len(honest) + len(attackers(played, result)) == 10


def test_other_bits_without_a_recorded_environment_are_not_checkable(player: Player) -> None:
    played = forged(player)
    options = ReplayOptions(lambda *_: None)
    result = replay_run(recorded_run(played), played.blobs, CLEAN, options)
    assert {update.verdict for update in attackers(played, result)} == {NOT_CHECKABLE}


def test_a_missing_payload_does_not_hide_its_update(player: Player) -> None:
    played = forged(player)
    run = recorded_run(played)
    for update in run.rounds[0].updates:
        assert update.payload is not None
        played.blobs.remove(update.payload)
    result = repeated(played)
    assert {u.verdict for u in attackers(played, result)} == {OTHER}
    assert {u.difference for u in result.updates} == {None}


def test_a_missing_model_is_named(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    played.blobs.remove(recorded_run(played).rounds[1].model)
    by_round = {update.round: update for update in repeated(played).updates}
    assert by_round[1].verdict is SAME
    assert by_round[2].verdict is NOT_CHECKABLE
    assert by_round[2].reason.startswith("the model of round 2")


def test_other_samples_than_those_of_the_data_root_are_named(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    run = recorded_run(played)
    moved = replace(run, document=replace(run.document, data_root=Digest(bytes(32))))
    result = replay_run(moved, played.blobs, CLEAN, ReplayOptions(lambda *_: here()))
    assert {update.verdict for update in result.updates} == {NOT_CHECKABLE}
    assert all("root" in update.reason for update in result.updates)


def test_an_abandoned_round_is_repeated_too(player: Player) -> None:
    played = player.play("protocol.rounds=1", "malice.members.silent=12")
    assert played.abandoned(1) is not None
    assert all_same(repeated(played))


def test_a_choice_names_rounds_and_clients(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    clients = (ClientId(3), ClientId(5))
    chosen = repeated(played, choice=UpdateChoice((2, 2), clients)).updates
    assert {update.round for update in chosen} == {2}
    assert {update.client for update in chosen} <= set(clients)
    for wrong in (UpdateChoice((1, 3)), UpdateChoice((0, 1)), UpdateChoice(None, (ClientId(12),))):
        with pytest.raises(ConfigurationError):
            recorded_run(played, wrong)


def test_the_witness_needs_the_losses(player: Player) -> None:
    played = player.play("protocol.rounds=1")
    auditor = Address(bytes(20))
    updates = [u for u in repeated(played).updates if u.losses is not None]
    witnesses = {replay_witness(auditor, update.losses or b"") for update in updates}
    assert len(witnesses) == len(updates)
    first = np.frombuffer(updates[0].losses or b"", "<f4")
    assert np.isfinite(first).all()
    assert sha256(updates[0].losses or b"") not in witnesses
