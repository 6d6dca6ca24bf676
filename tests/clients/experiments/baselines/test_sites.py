"""Participants with models of their own."""

from __future__ import annotations

import numpy as np
import pytest

from clients.adversaries.attackers import Attackers
from clients.attacks.registry import ATTACKS
from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack
from clients.experiments.baselines.sites import (
    Sites,
    draw_sites,
    require_sites,
    weighted_mean,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest
from tests.clients.experiments.baselines.steps import StepEngine, ids

SEED = Digest(bytes(32))
START = np.array([1, 2], np.float32)


def sites(engine: StepEngine, attackers: Attackers | None = None) -> Sites:
    return Sites(engine, START, ids(0, 1, 2), attackers or Attackers())


def test_everybody_moves_its_own_model_and_the_common_start_stays() -> None:
    engine = StepEngine({0: [1, 0], 1: [0, 1], 2: [2, 2]})
    them = sites(engine)
    them.train(ids(0, 1, 2), SEED)
    them.train(ids(1), SEED)
    assert {c: m.tolist() for c, m in them.models.items()} == {0: [2, 2], 1: [1, 4], 2: [3, 4]}
    assert START.tolist() == [1, 2]


def test_clients_with_one_start_model_train_in_one_call() -> None:
    engine = StepEngine({0: [1, 0], 1: [0, 1], 2: [2, 2]})
    them = sites(engine)
    for _ in range(2):
        them.train(ids(0, 1, 2), SEED)
    assert engine.trained == [[0, 1, 2], [0], [1], [2]]


def test_an_attacker_sends_its_forgery_and_keeps_its_model() -> None:
    engine = StepEngine({0: [1, 0], 1: [0, 1], 2: [2, 2]})
    them = sites(engine, Attackers(frozenset(ids(1)), "back-gradient"))
    them.train(ids(0, 1, 2), SEED)
    assert them.models[ids(1)[0]].tolist() == [1, 3]
    assert {c: them.sent(c).tolist() for c in ids(0, 1, 2)} == {0: [2, 2], 1: [1, 1], 2: [3, 4]}


def test_what_an_attacker_sends_is_of_its_newest_training() -> None:
    them = sites(StepEngine({1: [0, 1]}), Attackers(frozenset(ids(1)), "back-gradient"))
    for _ in range(2):
        them.train(ids(1), SEED)
    assert them.sent(ids(1)[0]).tolist() == [1, 2], "its second start was [1, 3]"


def test_a_model_that_diverged_stays_so_and_stops_nobody() -> None:
    them = sites(StepEngine({0: [np.inf, 0], 1: [-np.inf, 0], 2: [3e38, 0]}))
    for _ in range(2):
        them.train(ids(0, 1, 2), SEED)
    assert [model[0] for model in them.models.values()] == [np.inf, -np.inf, np.inf]
    assert np.isnan(weighted_mean(them.models, (1, 1, 1))[0])


def test_the_mean_is_weighted_by_samples() -> None:
    one, two = np.array([0, 4], np.float32), np.array([4, 0], np.float32)
    a, _, c = ids(0, 1, 2)
    assert weighted_mean({a: one, c: two}, (1, 9, 3)).tolist() == [3, 1]
    assert weighted_mean({c: two}, (1, 9, 3)).tolist() == [4, 0]


def test_the_mean_is_equal_in_every_part_of_a_vector() -> None:
    vectors = {c: np.full(70_000, c + 1, np.float32) for c in ids(0, 1)}
    assert set(weighted_mean(vectors, (1, 3)).tolist()) == {1.75}


def test_sites_are_drawn_once_from_the_seed_without_repetition() -> None:
    drawn = draw_sites(50, 20, seed=3)
    assert drawn == draw_sites(50, 20, seed=3) != draw_sites(50, 20, seed=4)
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == 20
    assert draw_sites(5, 5, seed=3) == ids(0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("rounds", "participants", "sentence"),
    [
        (0, 2, "rounds = 0: must be at least 1"),
        (1, 1, "participants = 1: must be at least 2"),
        (1, 6, "participants = 6: .* at most the 5 clients"),
    ],
)
def test_runs_that_cannot_be_are_refused(rounds: int, participants: int, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        require_sites(rounds, participants, 5)
    require_sites(1, 2, 5)
    require_sites(1, 5, 5)


def test_attackers_know_the_trainer_count_and_their_own_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[AttackInput] = []

    def look(asked: AttackInput) -> Update:
        seen.append(asked)
        return asked.own

    monkeypatch.setitem(ATTACKS, "look", UpdateAttack("look", look))
    engine = StepEngine({0: [1, 0], 1: [0, 1], 2: [2, 2]})
    sites(engine, Attackers(frozenset(ids(0, 2)), "look")).train(ids(0, 1, 2), SEED)
    assert [asked.trainers for asked in seen] == [3, 3]
    assert [asked.colluders.tolist() for asked in seen] == [[[-1, 0], [-2, -2]]] * 2
