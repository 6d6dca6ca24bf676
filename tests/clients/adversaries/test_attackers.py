"""Who attacks, what a round of clients sends, and what attackers are told in a whole run."""

from __future__ import annotations

import dataclasses
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.adversaries.attackers import Attackers, AttackRound, malicious_clients
from clients.attacks.registry import ATTACKS
from clients.attacks.updates import (
    AttackHistory,
    AttackInput,
    AttackParameters,
    Update,
    UpdateAttack,
)
from clients.configuration.loading import load
from clients.configuration.schema import Attacked
from clients.runs.open_run import open_memory_run
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from tests.faults import times
from tests.seeds import first_that_shows

SEED = bytes(range(32))
UPDATES = {ClientId(client): np.full(3, client, dtype=np.float32) for client in (9, 2, 5, 7)}
RULES = {preset: load(preset).parameters(650) for preset in ("smoke", "robust")}
MODEL = np.array([100.0, 0.0, -1.0], dtype=np.float32)


def attackers(*clients: int, attack: str | None = "back-gradient", **parameters: Any) -> Attackers:
    return Attackers(frozenset(map(ClientId, clients)), attack, AttackParameters(**parameters))


def a_round(seed: bytes = SEED, members: tuple[int, ...] = ()) -> AttackRound:
    starts = dict.fromkeys(map(ClientId, (2, 5, 7, 9)), MODEL)
    history = AttackHistory(MODEL[::-1].copy(), ((UPDATES[ClientId(5)],),))
    return AttackRound(seed, starts, frozenset(map(ClientId, members)), history=history)


def looking(monkeypatch: pytest.MonkeyPatch) -> list[AttackInput]:
    seen: list[AttackInput] = []

    def look(asked: AttackInput) -> Update:
        seen.append(asked)
        return asked.own

    monkeypatch.setitem(ATTACKS, "look", UpdateAttack("look", look))
    return seen


def test_the_honest_send_their_own_update_and_the_attackers_another() -> None:
    sent = attackers(2, 9, 11).corrupt(UPDATES, a_round())
    assert list(sent) == list(UPDATES)
    assert {client: vector[0] for client, vector in sent.items()} == {9: -9, 2: -2, 5: 5, 7: 7}
    assert UPDATES[ClientId(9)][0] == 9
    assert all(sent[ClientId(client)] is UPDATES[ClientId(client)] for client in (5, 7))


@pytest.mark.parametrize(
    "nobody", [Attackers(), attackers(2, attack=None), attackers(1, 3), attackers()]
)
def test_without_active_attackers_all_send_their_own_update(nobody: Attackers) -> None:
    sent = nobody.corrupt(UPDATES, a_round())
    assert all(sent[client] is update for client, update in UPDATES.items())


def test_attackers_know_each_others_updates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = looking(monkeypatch)
    attackers(9, 2, 4, attack="look").corrupt(UPDATES, a_round())
    assert [asked.own[0] for asked in seen] == [2, 9]
    assert [asked.colluders[:, 0].tolist() for asked in seen] == [[2, 9], [2, 9]]
    first, second = (asked.rng.random() for asked in seen)
    assert first != second, "each has a stream of its own"


def test_attackers_know_the_rules_and_the_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = looking(monkeypatch)
    rules = load("smoke").parameters(dimension=3)
    travel = np.array([0.0, 1.0, 0.0], dtype=np.float32)
    context = dataclasses.replace(a_round(members=(5, 9)), parameters=rules, travel=travel)
    attackers(2, 7, 9, attack="look").corrupt(UPDATES, context)
    assert [asked.is_member for asked in seen] == [False, False, True]
    assert {(asked.trainers, asked.attacking_trainers) for asked in seen} == {(2, 2)}
    assert all(asked.parameters is rules and asked.travel is travel for asked in seen)


def test_an_attack_on_weights_is_sent_as_an_update() -> None:
    # w = (100, 0, -1), and client 2 has trained to w - 2 = (98, -2, -3).
    two, nine = ClientId(2), ClientId(9)
    opposite = attackers(2, on="weights").corrupt(UPDATES, a_round())
    assert opposite[two].tolist() == [198, -2, -4], "w + w_2"
    zeros = attackers(2, 9, attack="same-value", on="weights").corrupt(UPDATES, a_round())
    assert zeros[two].tolist() == zeros[nine].tolist() == MODEL.tolist(), "w itself: to zero"
    # The mean of w - 2 and w - 9 is w - 5.5 = (94.5, -5.5, -6.5); half of it backwards.
    mean = attackers(2, 9, attack="ipm", on="weights").corrupt(UPDATES, a_round())
    assert mean[nine].tolist() == [147.25, -2.75, -4.25]
    assert mean[ClientId(5)] is UPDATES[ClientId(5)]


def test_each_attacker_on_weights_begins_where_it_has_trained_from() -> None:
    starts = {ClientId(c): np.full(3, 10.0 * c, dtype=np.float32) for c in (2, 9)}
    context = dataclasses.replace(a_round(), starts=starts)
    sent = attackers(2, 9, attack="same-value", on="weights").corrupt(UPDATES, context)
    assert [sent[client][0] for client in (ClientId(2), ClientId(9))] == [20, 90]


def test_attackers_only_as_members_are_honest_until_elected() -> None:
    waiting = attackers(2, 9, attack="ipm", only="members")
    nobody = waiting.corrupt(UPDATES, a_round(members=(5,)))
    assert all(nobody[client] is update for client, update in UPDATES.items())
    elected = waiting.corrupt(UPDATES, a_round(members=(5, 9)))
    assert elected[ClientId(2)] is UPDATES[ClientId(2)]
    assert elected[ClientId(9)].tolist() == [-2.75] * 3, "half the mean of 2 and 9, backwards"


def test_attackers_only_as_trainers_are_honest_on_the_committee() -> None:
    training = attackers(2, 9, attack="ipm", only="trainers")
    sent = training.corrupt(UPDATES, a_round(members=(9,)))
    assert sent[ClientId(9)] is UPDATES[ClientId(9)]
    assert sent[ClientId(2)].tolist() == [-2.75] * 3, "half the mean of 2 and 9, backwards"
    everywhere = training.corrupt(UPDATES, a_round())
    assert everywhere[ClientId(9)].tolist() == [-2.75] * 3


def test_a_shared_attack_is_computed_once_and_separately_for_members() -> None:
    sent = attackers(2, 5, 9, attack="min-max").corrupt(UPDATES, a_round(members=(9,)))
    assert sent[ClientId(2)] is sent[ClientId(5)]
    lies = attackers(2, 9, attack="false-reference").corrupt(UPDATES, a_round(members=(9,)))
    assert [lies[client][0] for client in (ClientId(2), ClientId(9))] == [-2.75, -90]


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("on", ["update", "weights"])
def test_the_order_of_the_clients_changes_nothing(name: str, on: Attacked) -> None:
    some = attackers(2, 7, 9, attack=name, on=on)
    sent = some.corrupt(UPDATES, a_round(members=(7,)))
    # Two of the others, in one of which all are turned around; `make faults` tries all.
    orders = [[*UPDATES][::-1], sorted(UPDATES)]
    for order in orders if times(0, 1) == 0 else permutations(UPDATES):
        again = some.corrupt({client: UPDATES[client] for client in order}, a_round(members=(7,)))
        assert list(again) == list(order)
        assert all(np.array_equal(sent[client], again[client]) for client in order)
        assert again[ClientId(5)] is UPDATES[ClientId(5)]


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    scaling = attackers(2, 9, attack="gradient-scaling")
    rounds = (a_round(), a_round(), a_round(bytes(32)))
    first, again, other = (scaling.corrupt(UPDATES, context) for context in rounds)
    assert np.array_equal(first[ClientId(9)], again[ClientId(9)])
    assert not np.array_equal(first[ClientId(9)], other[ClientId(9)])


def test_an_update_beyond_float32_is_sent_as_an_unusable_one() -> None:
    huge = {ClientId(2): np.full(3, 1e38, dtype=np.float32)}
    for on in ("update", "weights"):
        sent = attackers(2, on=on, factor=1000.0).corrupt(huge, a_round())
        assert np.isinf(sent[ClientId(2)]).all()


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_attackers_with_non_finite_training_attack_without_a_warning(attack: str) -> None:
    lost = {ClientId(client): np.full(650, np.inf, dtype=np.float32) for client in (2, 5, 7)}
    for preset in ("smoke", "robust"):
        history = AttackHistory(lost[ClientId(2)])
        starts = dict.fromkeys(lost, lost[ClientId(2)])
        context = dataclasses.replace(
            a_round(), starts=starts, parameters=RULES[preset], history=history
        )
        for on in ("update", "weights"):
            sent = attackers(*lost, attack=attack, on=on).corrupt(lost, context)
            assert all(vector.shape == (650,) for vector in sent.values())


def test_many_samples_multiplies_what_its_attackers_register() -> None:
    counts = (4, 5, 6, 7)
    assert attackers(1, 3, attack="many-samples").declared_samples(counts) == (4, 50, 6, 70)
    halves = attackers(1, attack="many-samples", factor=2.5)
    assert halves.declared_samples(counts) == (4, 13, 6, 7)
    for honest in (attackers(1, 3, attack="worst-drift"), attackers(attack="many-samples")):
        assert honest.declared_samples(counts) == counts
    with pytest.raises(ConfigurationError, match=r"malice\.factor = 0\.5: .* takes 1 to 1000"):
        attackers(1, attack="many-samples", factor=0.5).declared_samples(counts)


@pytest.mark.parametrize(
    ("clients", "rate", "count"),
    [(60, 0.3, 18), (10, 0.25, 3), (10, 0.24, 2), (5, 0.0, 0), (5, 1.0, 5), (1, 0.5, 1)],
)
def test_the_malicious_clients_are_the_rounded_rate(clients: int, rate: float, count: int) -> None:
    chosen, again = (malicious_clients(clients, rate, np.random.default_rng(0)) for _ in "12")
    assert len(chosen) == count
    assert list(chosen) == sorted(set(chosen))
    assert all(type(client) is int and 0 <= client < clients for client in chosen)
    assert chosen == again


ROUNDS = 3
SETTINGS = (
    "machine.ledger=memory",
    f"protocol.rounds={ROUNDS}",
    "protocol.strategy=3",
    "malice.attack=adaptive",
    "malice.malicious_rate=0.3",
)


def played(home: Path, seed: int, *settings: str) -> tuple[list[np.ndarray], int]:
    """Return the model of each round and how many attackers' updates were accepted."""
    configuration = load("smoke", settings=(*SETTINGS, f"seed={seed}", *settings))
    models = []
    with open_memory_run(home, "run", configuration) as run:
        rows = run.go_on(lambda _: models.append(np.array(run.simulation.model)))
    return models, sum(row.malicious_accepted for row in rows)


def test_a_run_tells_attackers_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AttackInput] = []
    forge = ATTACKS["adaptive"].forge

    def looking(asked: AttackInput) -> Update:
        seen.append(asked)
        return forge(asked)

    def play(seed: int) -> list[np.ndarray]:
        seen.clear()
        models, _ = played(tmp_path / str(seed), seed)
        return models

    def sat_on_both_sides(_: list[np.ndarray]) -> bool:
        return {asked.is_member for asked in seen} == {True, False}

    monkeypatch.setitem(ATTACKS, "adaptive", UpdateAttack("adaptive", looking))
    models = first_that_shows(sat_on_both_sides, play, first=0)
    rules = load("smoke", settings=SETTINGS).parameters(len(models[0]))
    assert all(asked.parameters == rules and asked.trainers == rules.trainers for asked in seen)
    travels = [asked.travel for asked in seen]
    assert travels[0] is None or not travels[0].any(), "nothing lies behind the first round"
    assert travels[-1] is not None
    assert travels[-1].shape == models[0].shape
    assert travels[-1].any()


def test_an_attacked_run_is_reproducible_and_differs_by_its_base(tmp_path: Path) -> None:
    def play(seed: int) -> tuple[int, list[np.ndarray], int]:
        return seed, *played(tmp_path / f"first{seed}", seed)

    # The rule accepts who stays just inside it, in most runs.
    seed, models, accepted = first_that_shows(lambda one: one[2] > 0, play, first=0)
    again, other = (
        played(tmp_path / name, seed, *settings)
        for name, settings in (("again", ()), ("other", ("malice.on=weights",)))
    )
    assert all(np.array_equal(one, two) for one, two in zip(models, again[0], strict=True))
    assert accepted == again[1]
    assert not np.array_equal(models[-1], other[0][-1])
