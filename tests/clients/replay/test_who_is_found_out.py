"""Attacks and faults of the catalogue, repeated, against docs/explanation/training-replay.md."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.attacks.registry import ATTACKS
from clients.attacks.samples import DATA_ATTACKS
from clients.datasets.own_samples import simulated_digests
from clients.replay.replay_inputs import ReplayRequest
from clients.replay.results import VERDICT_NAMES, TrainingReplay
from clients.replay.training_replay import replay_run
from clients.simulation import SimulatedActors
from ledger.actors.view import ChainView
from ledger.protocol.inputs import data_root
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId
from tests.clients.replay.support import (
    CLEAN,
    NOT_CHECKABLE,
    OTHER,
    SAME,
    here,
    repeated,
    run_of,
    verdicts,
)

if TYPE_CHECKING:
    from tests.clients.played import Played, Player

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "training-replay.md"
POISONED = ReplayRequest(poisoned=True)
ONE_ROUND = ("protocol.rounds=1", "training.local_steps=1")
ATTACKING = "malice.malicious_rate=0.4"


def row_of(name: str) -> tuple[str, str]:
    """Return the verdicts of a row of the page: on clean samples, and on those trained on."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| `")]
    (row,) = [row for row in rows if row[1] == f"`{name}`"]
    return row[-3], row[-2]


def found(result: TrainingReplay, culprits: Collection[ClientId]) -> str:
    """Return the verdicts on some clients; the updates of all others must be the same."""
    by_client = verdicts(result)
    honest = [by_client[client] for client in by_client if client not in culprits]
    assert all(verdict == {SAME} for verdict in honest)
    named = {verdict for client in culprits for verdict in by_client.get(client, ())}
    return ", ".join(VERDICT_NAMES[verdict] for verdict in sorted(named)) or "nothing to repeat"


def is_documented(verdict: str, allowed: str) -> bool:
    return set(verdict.split(", ")) <= set(allowed.split(", "))


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_updates_are_found_out_as_documented(player: Player, attack: str) -> None:
    played = player.play(*ONE_ROUND, f"malice.attack={attack}", ATTACKING)
    verdict = found(repeated(played), played.population.malicious)
    assert all(is_documented(verdict, allowed) for allowed in row_of(attack))


def test_copies_are_other_updates_once_there_is_one_to_copy(player: Player) -> None:
    played = player.play("protocol.rounds=2", "malice.attack=tail", ATTACKING)
    assert found(repeated(played), played.population.malicious) == "same, other"


@pytest.mark.parametrize("attack", ["gradient-scaling", "same-value", "back-gradient"])
def test_every_attack_of_the_paper_is_another_update(player: Player, attack: str) -> None:
    settings = ("malice.on=weights", f"malice.attack={attack}", ATTACKING)
    played = player.play("protocol.rounds=2", *settings)
    result = repeated(played)
    assert found(result, played.population.malicious) == "other"
    other = next(update for update in result.updates if update.verdict is OTHER)
    assert other.difference is not None
    assert (other.difference.relative or 0) > 0.1
    assert "data_root" in other.reason


@pytest.mark.parametrize("attack", DATA_ATTACKS)
def test_poisoned_samples_are_found_out_by_clean_ones(player: Player, attack: str) -> None:
    played = player.play(*ONE_ROUND, f"malice.attack={attack}", ATTACKING)
    attackers = played.population.malicious
    expected = row_of(attack)
    assert (found(repeated(played), attackers), found(repeated(played, POISONED), attackers)) == (
        expected
    )


@pytest.mark.parametrize("fault", TrainerFault)
def test_faults_of_trainers_are_found_out_as_documented(player: Player, fault: Any) -> None:
    played = player.play(*ONE_ROUND, f"malice.trainers.{fault}=2")
    verdict = found(repeated(played), played.population.trainer_faults)
    assert all(is_documented(verdict, allowed) for allowed in row_of(fault))


@pytest.mark.parametrize("fault", [MemberFault.FALSE_REFERENCE, MemberFault.FALSE_SCORES])
def test_only_a_false_reference_of_a_member_is_another_update(player: Player, fault: Any) -> None:
    played = player.play(*ONE_ROUND, f"malice.members.{fault}=12")
    members = played.participants(1).members
    verdict = found(repeated(played), members)
    assert (verdict, verdict) == row_of(fault)


class Thief(SimulatedActors):
    """Actors of which some clients send what they did not train."""

    stolen: ClassVar[dict[ClientId, Payload]] = {}

    def updates(
        self, chain: ChainView, model: NDArray[np.float32], travel: NDArray[np.float32] | None
    ) -> tuple[Mapping[ClientId, NDArray[np.float32]], dict[ClientId, Payload]]:
        sent, payloads = super().updates(chain, model, travel)
        sent = dict(sent)
        for client in set(self.steals(payloads)) & payloads.keys():
            payloads[client] = self.stolen[client]
            sent[client] = np.frombuffer(payloads[client].data, "<f4")
        return sent, payloads

    def steals(self, payloads: Mapping[ClientId, Payload]) -> Collection[ClientId]:
        raise NotImplementedError


class Copyist(Thief):
    """Client 0 sends the update of the last active client as its own."""

    def steals(self, payloads: Mapping[ClientId, Payload]) -> Collection[ClientId]:
        victim = payloads[max(payloads)]
        self.stolen[ClientId(0)] = Payload(bytes(victim.data), victim.digest)
        return {ClientId(0)}


class Idler(Thief):
    """Clients 0 to 5 send their first update again."""

    def steals(self, payloads: Mapping[ClientId, Payload]) -> Collection[ClientId]:
        idle = {ClientId(client) for client in range(6)} & payloads.keys()
        first = idle - self.stolen.keys()
        for client in first:
            payload = payloads[client]
            self.stolen[client] = Payload(bytes(payload.data), payload.digest)
        return idle - first


def played_by(
    kind: type[Thief], rounds: int, player: Player, monkeypatch: pytest.MonkeyPatch
) -> Played:
    monkeypatch.setattr("clients.runs.open_run.SimulatedActors", kind)
    monkeypatch.setattr(kind, "stolen", {})
    return player.play(f"protocol.rounds={rounds}", "training.local_steps=1")


def test_a_copied_update_is_another(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    result = repeated(played_by(Copyist, 2, player, monkeypatch))
    verdict = found(result, {ClientId(0)})
    assert (verdict, verdict) == row_of("copied update")


def test_a_stale_update_is_another(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    result = repeated(played_by(Idler, 3, player, monkeypatch))
    first: set[ClientId] = set()
    for update in result.updates:
        stale = update.client < 6 and update.client in first
        assert update.verdict is (OTHER if stale else SAME)
        first.add(update.client)
    assert row_of("stale update") == ("other", "other")


def test_a_false_number_of_samples_is_named_first(player: Player) -> None:
    played = player.play(*ONE_ROUND)
    run, data = run_of(played), played.population.clean
    registry = list(run.document.registry)
    liar = run.clients[0]
    registry[liar] = replace(registry[liar], samples=10 * registry[liar].samples)
    counts = [client.samples for client in registry]
    root = data_root(counts, simulated_digests(data, played.configuration.seed))
    lie = replace(run, document=replace(run.document, registry=tuple(registry), data_root=root))
    result = replay_run(lie, played.blobs, CLEAN, lambda *_: here())
    assert found(result, {liar}) == VERDICT_NAMES[NOT_CHECKABLE]
    assert row_of("claimed samples") == ("not checkable", "not checkable")
    (named,) = {update.reason for update in result.updates if update.client == liar}
    assert named.startswith(f"it claims {counts[liar]} samples")
