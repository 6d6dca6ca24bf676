"""Honest updates, repeated: the same bits on every path, and environments as recorded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.datasets.own_samples import simulated_signers
from clients.models.model import class_shift
from clients.replay.replay_inputs import ReplayRequest, of_mailbox, of_simulation
from clients.replay.results import ReplayedUpdate, TrainingReplay
from clients.replay.training_replay import replay_run
from clients.runs.run_folder import run_folder
from ledger.io.home import Home
from ledger.protocol.documents.envelope import Envelope, PublishedEnvironment
from ledger.protocol.encoding import RegisteredClient, sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import sign
from ledger.protocol.training_replay import TrainingEnvironment, replay_witness
from ledger.protocol.types import Address, ClientId, Digest, Domain, EnvironmentStatement
from ledger.storage.mailbox import MemoryMailbox
from tests.clients.replay.support import CLEAN, NOT_CHECKABLE, OTHER, SAME, here, repeated, run_of

if TYPE_CHECKING:
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
def test_false_counts_are_told(
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
    assert all_same(repeated(played, ReplayRequest(settings=(f"model.name={copy}:Net",))))
    with pytest.raises(ConfigurationError, match=r"model\.name"):
        repeated(played)  # nobody runs code because a document names it
    Path(copy).write_text(FROZEN.replace("seed=3", "seed=4"))
    with pytest.raises(ConfigurationError, match="name a copy of the run's code"):
        repeated(played, ReplayRequest(settings=(f"model.name={copy}:Net",)))


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
    result = replay_run(run_of(played), played.blobs, CLEAN, lambda *_: None)
    assert {update.verdict for update in attackers(played, result)} == {NOT_CHECKABLE}


def test_a_missing_payload_does_not_hide_its_update(player: Player) -> None:
    played = forged(player)
    run = run_of(played)
    for update in run.rounds[0].updates:
        assert update.payload is not None
        played.blobs.remove(update.payload)
    result = repeated(played)
    assert {u.verdict for u in attackers(played, result)} == {OTHER}
    assert {u.difference for u in result.updates} == {None}


def test_a_missing_model_is_named(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    played.blobs.remove(run_of(played).rounds[1].model)
    by_round = {update.round: update for update in repeated(played).updates}
    assert by_round[1].verdict is SAME
    assert by_round[2].verdict is NOT_CHECKABLE
    assert by_round[2].reason.startswith("the model of round 2")


def test_other_samples_than_those_of_the_data_root_are_named(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    run = run_of(played)
    moved = replace(run, document=replace(run.document, data_root=Digest(bytes(32))))
    result = replay_run(moved, played.blobs, CLEAN, lambda *_: here())
    assert {update.verdict for update in result.updates} == {NOT_CHECKABLE}
    assert all("root" in update.reason for update in result.updates)


def test_an_abandoned_round_is_repeated_too(player: Player) -> None:
    played = player.play("protocol.rounds=1", "malice.members.silent=12")
    assert played.abandoned(1) is not None
    assert all_same(repeated(played))


def test_a_choice_names_rounds_and_clients(player: Player) -> None:
    played = player.play(*TWO_ROUNDS)
    clients = (ClientId(3), ClientId(5))
    chosen = repeated(played, ReplayRequest(rounds=(2, 2), clients=clients)).updates
    assert {update.round for update in chosen} == {2}
    assert {update.client for update in chosen} <= set(clients)
    bounds = [ReplayRequest(rounds=rounds) for rounds in ((1, 3), (0, 1))]
    for wrong in (*bounds, ReplayRequest(clients=(ClientId(12),))):
        with pytest.raises(ConfigurationError):
            run_of(played, wrong)


def test_the_witness_needs_the_losses(player: Player) -> None:
    played = player.play("protocol.rounds=1")
    auditor = Address(bytes(20))
    updates = [u for u in repeated(played).updates if u.losses is not None]
    witnesses = {replay_witness(auditor, update.losses or b"") for update in updates}
    assert len(witnesses) == len(updates)
    first = np.frombuffer(updates[0].losses or b"", "<f4")
    assert np.isfinite(first).all()
    assert sha256(updates[0].losses or b"") not in witnesses


DOMAIN = Domain(1, Address(bytes(20)), Digest(bytes(32)))
SIGNERS = simulated_signers(0, 5)
HERE = here()
ELSEWHERE = replace(HERE, isa="another")
CLIENTS = [RegisteredClient(signer.address, 1) for signer in SIGNERS[:3]]


def stated(
    client: int,
    environment: TrainingEnvironment = HERE,
    *,
    round_number: int = 2,
    domain: Domain = DOMAIN,
    key: int | None = None,
) -> Envelope:
    """Return a client's statement, signed by its own key or another's."""
    statement = EnvironmentStatement(round_number, ClientId(client), environment.digest)
    signature = sign(SIGNERS[client if key is None else key], domain, statement)
    body = PublishedEnvironment(environment, signature)
    return Envelope(DOMAIN, round_number, ClientId(client), body)


def known(*envelopes: Envelope, client: int = 1) -> TrainingEnvironment | None:
    mailbox = MemoryMailbox()
    for envelope in envelopes:
        mailbox.put(envelope)
    return of_mailbox(mailbox, DOMAIN, CLIENTS)(2, ClientId(client))


def test_a_clients_own_statement_for_the_round_counts() -> None:
    assert known(stated(1), stated(2, ELSEWHERE)) == HERE
    assert known(stated(1), stated(2, ELSEWHERE), client=2) == ELSEWHERE
    assert known(stated(1), client=0) is None
    assert known(stated(1, round_number=1)) is None


def test_a_statement_that_another_key_signed_does_not_count() -> None:
    assert known(stated(1, key=2)) is None
    assert known(stated(1), stated(1, ELSEWHERE, key=2)) == HERE


def test_a_statement_of_another_run_does_not_count() -> None:
    assert known(stated(1, domain=replace(DOMAIN, salt=Digest(bytes([1] * 32))))) is None


def test_a_client_that_nobody_registered_is_passed_over() -> None:
    assert known(stated(4), client=4) is None


def test_of_two_different_statements_neither_counts() -> None:
    assert known(stated(1), stated(1)) == HERE
    assert known(stated(1), stated(1, ELSEWHERE)) is None


def test_a_mailbox_that_cannot_be_read_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryMailbox):
        asked = 0

        def listed(self, *_: object, **__: object) -> Sequence[Envelope]:
            self.asked += 1
            raise OSError(5, "the store is away")

    mailbox = Away()
    environments = of_mailbox(mailbox, DOMAIN, CLIENTS)
    assert [environments(number, ClientId(1)) for number in (1, 1, 2)] == [None] * 3
    assert mailbox.asked == 1
    assert "the store is away" in caplog.text


def test_a_simulation_records_each_change(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "run")
    folder.paths.path.mkdir(parents=True)
    assert folder.environments() == []
    for number, environment in ((1, HERE), (4, HERE), (7, ELSEWHERE)):
        folder.record_environment(number, environment)
    assert folder.environments() == [(1, HERE), (7, ELSEWHERE)]
    of = of_simulation(folder.environments())
    assert [of(number, ClientId(0)) for number in (0, 1, 6, 7)] == [None, HERE, HERE, ELSEWHERE]


def test_a_round_begun_elsewhere_is_of_none(other: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("protocol.rounds=2", "training.path=plain")
    while other.cut(*settings, left=1, after=True):
        if Home(other.home).deployed() and other.ledger().commitments(1):
            break
    monkeypatch.setattr("clients.runs.open_run.environment_of_run", lambda _: ELSEWHERE)
    played = other.play(*settings)
    environments = played.run.folder.environments()
    of = of_simulation(environments)
    first, second = (of(number, ClientId(0)) for number in (1, 2))
    assert first not in {environments[0][1], ELSEWHERE, None}
    assert second == ELSEWHERE


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b'{"round": 1}',
        b'{"round": 0, "torch": "t", "path": "plain", "processor": "p", "isa": "i", '
        b'"device": "cpu", "threads": 1}',
        b'{"round": 1, "torch": 18446744073709551616, "path": "plain", "processor": "p", '
        b'"isa": "i", "device": "cpu", "threads": 1}',
        b'{"round": 1, "torch": 5, "path": "plain", "processor": "p", "isa": "i", '
        b'"device": "cpu", "threads": 1}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_environment_is_named(tmp_path: Path, line: bytes) -> None:
    folder = run_folder(tmp_path, "run")
    folder.paths.path.mkdir(parents=True)
    folder.paths.environments.write_bytes(line + b"\n")
    with pytest.raises(ConfigurationError, match=r"environments\.jsonl, line 1"):
        folder.environments()
