"""Attackers that play the run's rule: by pencil, by what they may know, and in whole runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.adversaries.attack_memory import AttackHistory, AttackMemory, remembered_round
from clients.adversaries.attackers import Attackers, AttackRound
from clients.attacks.false_model import false_model
from clients.attacks.registry import ATTACKS, attack_named
from clients.attacks.updates.rule_aware import search
from clients.attacks.updates.rule_aware.estimate import estimated_effects
from clients.attacks.updates.rule_aware.frame import Frame
from clients.attacks.updates.rule_aware.game import games
from clients.attacks.updates.update_attack import (
    AttackInput,
    AttackParameters,
    ServerRule,
    UpdateAttack,
)
from clients.configuration.loading import load
from clients.datasets.federated_data import Samples
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate
from clients.training.engine_factory import open_engine
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from clients.configuration.schema import Attacking

RULE_AWARE = sorted(name for name, attack in ATTACKS.items() if attack.needs_history)
SEED = bytes(range(32))
MALICIOUS = tuple(map(ClientId, (1, 6, 8, 20, 22, 25)))
MEMBERS = tuple(map(ClientId, range(12)))
DIMENSION = 40


def asked(colluders: Any, factor: float = 1.0, **context: Any) -> AttackInput:
    known = np.array(colluders, dtype=np.float32)
    model = np.zeros(known.shape[1], dtype=np.float32)
    bad_model = np.zeros_like(model)
    bad_model[1] = -5
    known_too: dict[str, Any] = {"model": model, "bad_model": bad_model, "trainers": 18}
    return AttackInput(
        known[0], known, np.random.default_rng(0), factor, **{**known_too, "members": 12, **context}
    )


def sent_in_a_round(
    attack: str,
    honest: int = 0,
    published: int = 1,
    seed: bytes = SEED,
    drift: int | None = None,
    rounds: tuple[tuple[np.ndarray, ...], ...] | None = None,
    only: Attacking | None = None,
) -> np.ndarray:
    """What the attackers send in a round of 30 clients of the preset `robust`.

    Args:
        attack: its name.
        honest: seed of the honest updates of the round.
        published: seed of those of the round before.
        seed: of the round.
        drift: axis of the way that honest clients took; None for no earlier round.
        rounds: published before in place of the one of `published`, the later first.
        only: what the attackers are not honest as.
    """
    rules = load("robust").parameters(DIMENSION)
    model = np.zeros(DIMENSION, dtype=np.float32)
    updates = {**_updates(honest), **{c: _updates(7)[c] for c in MALICIOUS}}
    travel = np.eye(DIMENSION, dtype=np.float32)[0]
    context = AttackRound(
        seed=seed,
        starts=dict.fromkeys(updates, model),
        members=frozenset(MEMBERS),
        parameters=rules,
        travel=travel,
        history=AttackHistory(
            bad_model=model - np.eye(DIMENSION, dtype=np.float32)[1],
            published=(_honest(published),) if rounds is None else rounds,
            drift=None if drift is None else np.eye(DIMENSION)[drift],
        ),
    )
    attackers = Attackers(frozenset(MALICIOUS), attack, AttackParameters(only=only))
    sent = attackers.corrupt(updates, context)
    return np.stack([sent[client] for client in MALICIOUS])


def test_attackers_wait_until_they_send_half_of_a_round() -> None:
    forge_all = ATTACKS["half"].forge_all
    assert forge_all is not None
    known = np.stack(_honest(7))
    rules = load("robust").parameters(DIMENSION)
    for others, is_half in ((1, False), (0, True)):
        size = 2 * len(known) + others
        attacker = asked(known, parameters=rules, published=(_honest(1),), seats=(0, 1))
        attacker = dataclasses.replace(
            attacker,
            members=size // 3,
            trainers=size - size // 3,
            attacking_trainers=len(known) - 2,
        )
        sent = forge_all(attacker)
        if not is_half:
            assert np.array_equal(sent, known)
            continue
        lengths = np.linalg.norm(sent, axis=1) / np.median(np.linalg.norm(known, axis=1))
        assert lengths[2:] == pytest.approx([1e4] * (len(known) - 2), rel=1e-5)
        # Who is honest in the round does not count.
        idle = dataclasses.replace(attacker, idle=(0,))
        assert np.array_equal(forge_all(idle), known)


def test_where_all_updates_are_averaged_target_goes_straight() -> None:
    sent = attack_named("target").forge(asked([[1, 0, 0], [3, 0, 0]]))
    np.testing.assert_allclose(sent, [0, 4, 0], rtol=1e-6, atol=1e-6)


def test_noise_hides_the_goal_in_noise_of_each_attackers_own() -> None:
    attack = attack_named("noise")
    colluders = np.zeros((3, 4000))
    colluders[:, 0] = 2
    travel = np.eye(4000, dtype=np.float32)[2]
    assert attack.forge_all is not None
    sent = attack.forge_all(asked(colluders, factor=30.0, travel=travel)) / 4
    np.testing.assert_allclose(sent[:, 1], 0.5, atol=0.05)
    np.testing.assert_allclose(sent[:, 2], 0.3, atol=0.06)
    rest = sent.copy()
    rest[:, 1:3] = 0
    cosines = rest @ rest.T / np.outer(*[np.linalg.norm(rest, axis=1)] * 2)
    assert np.abs(cosines - np.eye(3)).max() < 0.1


@pytest.mark.parametrize("attack", RULE_AWARE)
def test_honest_updates_of_the_round_change_nothing(attack: str) -> None:
    first, other = (sent_in_a_round(attack, honest=h) for h in (0, 3))
    assert np.array_equal(first, other)
    assert np.isfinite(first).all()


@pytest.mark.parametrize("attack", ["worst-back", "worst-full"])
def test_updates_of_the_round_before_change_what_is_sent(attack: str) -> None:
    assert not np.array_equal(sent_in_a_round(attack), sent_in_a_round(attack, published=2))


def test_target_plays_with_the_last_published_round_alone() -> None:
    last, calm = _honest(1), _honest(2, noise=0.02)
    alone, beside, other = (
        sent_in_a_round("target", rounds=rounds) for rounds in ((last,), (last, calm), (calm,))
    )
    assert np.array_equal(alone, beside)
    assert not np.array_equal(alone, other)


@pytest.mark.parametrize("attack", RULE_AWARE)
@pytest.mark.parametrize("only", ["members", "trainers"])
def test_attackers_are_honest_as_what_they_do_not_attack_as(attack: str, only: Attacking) -> None:
    is_member = np.isin(MALICIOUS, MEMBERS)
    is_attacking = is_member == (only == "members")
    honest = np.stack([_updates(7)[client] for client in MALICIOUS])
    sent = sent_in_a_round(attack, only=only)
    assert np.array_equal(sent[~is_attacking], honest[~is_attacking])
    # A search may leave members honest where their updates change no decision.
    is_searched = attack == "many-samples" or attack.startswith("worst")
    if attack != "half" and (only == "trainers" or not is_searched):
        assert (sent[is_attacking] != honest[is_attacking]).any()


def test_worst_drift_moves_the_model_against_the_way_of_honest_clients() -> None:
    first, other = (sent_in_a_round("worst-drift", drift=axis).mean(axis=0) for axis in (1, 2))
    assert first[1] < -0.5 < first[2]
    assert other[2] < -0.5 < other[1]


def test_chance_follows_from_the_rounds_seed() -> None:
    first, again, other = (sent_in_a_round("noise", seed=s) for s in (SEED, SEED, bytes(32)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_target_moves_the_model_towards_the_false_one() -> None:
    # The rule accepts them: they follow the honest direction as far as it asks.
    sent = sent_in_a_round("target")
    assert sent[:, 1].mean() > 1
    assert _updates(0)[ClientId(0)][1] < 1


@pytest.mark.parametrize("attack", ["target", "worst-full"])
def test_what_a_search_estimates_is_what_it_plays(
    attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[NDArray[np.float64]] = []

    def compared(estimates: NDArray[np.float64], effect: Callable[[int], float]) -> int:
        played = np.array([effect(index) for index in range(0, len(estimates), 5)])
        np.testing.assert_allclose(estimates[::5], played, rtol=1e-5, atol=1e-6)
        searched.append(played)
        return best_of(estimates, effect)

    best_of = search.best_of
    monkeypatch.setattr(search, "best_of", compared)
    sent = sent_in_a_round(attack)
    assert len(set(searched[0].round(4))) > 5
    monkeypatch.setattr(search, "can_estimate", lambda _attacker: False)
    monkeypatch.setattr(search, "best_of", best_of)
    assert np.array_equal(sent, sent_in_a_round(attack))


@pytest.mark.parametrize("attack", ["target", "worst-back"])
def test_a_server_that_averages_is_estimated_and_played_alike(attack: str) -> None:
    def mean(updates: Any, _last: Any, _rng: Any) -> NDArray[np.float64]:
        played.append(len(updates))
        return np.asarray(np.mean(np.asarray(updates, dtype=np.float64), axis=0))

    forge_all = ATTACKS[attack].forge_all
    assert forge_all is not None
    sent, games_played = [], []
    for is_mean in (True, False):
        played: list[int] = []
        server = ServerRule(mean, np.zeros(DIMENSION), is_of_angles=True, is_mean=is_mean)
        attacker = asked(_honest(7), server=server, published=(_honest(1), _honest(2)))
        sent.append(forge_all(attacker))
        games_played.append(len(played))
    assert np.array_equal(sent[0], sent[1])
    assert games_played[0] < games_played[1] / 4


def test_of_equal_effects_the_first_is_taken_whatever_was_estimated() -> None:
    effects = [1.0, 3.0, 3.0 * (1 + 1e-6), 2.0]

    def best(*estimates: float) -> tuple[int, list[int]]:
        asked_for: list[int] = []

        def effect(index: int) -> float:
            asked_for.append(index)
            return effects[index]

        return search.best_of(np.array(estimates), effect), sorted(asked_for)

    assert best(*effects) == (1, [1, 2])
    # An estimate that is far too high costs a game, and hides nothing.
    assert best(9.0, 3.0, 3.0, 2.0) == (1, [0, 1, 2])
    assert best(*[np.inf] * 4) == (1, [0, 1, 2, 3])


def test_an_update_without_direction_is_played_not_estimated() -> None:
    rules = load("robust").parameters(DIMENSION)
    attacker = asked(list(_honest(7)), parameters=rules, published=(_honest(1),), members=12)
    attacker = dataclasses.replace(attacker, attacking_trainers=len(attacker.colluders))
    frame = Frame.of(attacker)
    (game,) = games(attacker, frame)
    direction = (frame.row(frame.goal) @ game.coordinates)[0]
    same = frame.norms[frame.own][:, None] * frame.row(frame.own)
    finite, infinite = estimated_effects(game, [same, 0 * same], direction)
    assert (np.isfinite(finite), infinite) == (True, np.inf)


def test_short_coordinates_have_the_lengths_and_angles_of_updates() -> None:
    rng = np.random.default_rng(0)
    frame = Frame.of(asked(rng.standard_normal((3, 500)), published=((np.ones(500, np.float32),),)))
    coordinates = frame.coordinates()
    assert coordinates.shape[1] < 20
    np.testing.assert_allclose(coordinates @ coordinates.T, frame.table, atol=1e-12)


def test_memory_knows_only_what_earlier_rounds_published() -> None:
    model = np.zeros(2, dtype=np.float32)
    memory = AttackMemory(model - 1, frozenset({ClientId(5)}))
    update = np.ones(2, dtype=np.float32)
    first = memory.history(1, model)
    assert (first.published, first.drift, first.travel) == ((), None, None)
    memory.round_ended({ClientId(3): update, ClientId(4): None, ClientId(5): -update})
    update[:] = 9  # the engine writes there again
    later = memory.history(2, model - 2)
    assert [[one.tolist() for one in updates] for updates in later.published] == [[[1, 1]]]
    assert later.travel is not None
    assert later.travel.tolist() == [2, 2]


def test_drift_forgets_a_part_of_itself_in_each_round() -> None:
    memory = AttackMemory(np.zeros(2, dtype=np.float32))
    for update in ([3, 0], [0, 4], [0, 0], [np.inf, 0]):
        memory.round_ended({ClientId(0): np.array(update, dtype=np.float32)})
    drift = memory.history(5, np.zeros(2, dtype=np.float32)).drift
    assert drift is not None  # zeros add nothing to it, and what is not finite is left out
    np.testing.assert_allclose(drift, [0.85**2, 0.85])


def test_memory_holds_two_models_and_rounds_however_long_a_run_is() -> None:
    memory = AttackMemory(np.zeros(1, dtype=np.float32))
    for number in range(1, 60):
        now = memory.history(number, np.full(1, -number, dtype=np.float32))
        assert [float(update[0]) for (update,) in now.published] == [
            n for n in (number - 1, number - 2) if n > 0
        ]
        assert len(memory._models) <= 2
        memory.round_ended({ClientId(0): np.full(1, number, dtype=np.float32)})
        if number > 1:
            assert now.travel is not None
            assert now.travel[0] == number - remembered_round(number)
    assert [remembered_round(t) for t in (1, 10, 11, 20, 21, 31)] == [1, 1, 1, 1, 11, 21]


def test_a_run_gives_what_honest_clients_published_in_two_rounds_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[AttackInput] = []
    corrupt, sent = Attackers.corrupt, []

    def look(attacker: AttackInput) -> np.ndarray:
        seen.append(attacker)
        return attacker.colluders

    def watched(self: Attackers, updates: Any, context: AttackRound) -> Any:
        found = corrupt(self, updates, context)
        sent.append([np.array(found[c]) for c in sorted(found.keys() - self.clients)])
        return found

    attack = UpdateAttack("target", look, forge_all=look, needs_history=True)
    monkeypatch.setitem(ATTACKS, "target", attack)
    monkeypatch.setattr(Attackers, "corrupt", watched)
    settings = ("machine.ledger=memory", "malice.attack=target", "malice.malicious_rate=0.3")
    configuration = load("smoke", settings=(*settings, "protocol.rounds=4", "seed=1"))
    with open_memory_run(tmp_path, "run", configuration) as run:
        run.go_on(lambda _: None)
    assert len(seen) == 4
    for number, one in enumerate(seen):
        rounds = sent[max(0, number - 2) : number][::-1]
        assert len(one.published) == len(rounds)
        assert all(map(np.array_equal, one.published, rounds))
    assert all(one.bad_model is seen[0].bad_model for one in seen)


def test_the_false_model_answers_with_the_next_class() -> None:
    configuration = load("smoke", settings=("malice.attack=target", "malice.malicious_rate=0.3"))
    population = populate(configuration)
    memory = population.attack_memory(configuration)
    assert memory is not None
    x, y = population.clean.test
    sets = {"true": Samples(x, y), "next": Samples(x, (y + 1) % population.clean.form.classes)}
    training = configuration.local_training()
    with open_engine(
        population.model, population.clean, training, device="cpu", workers=1, path="plain",
        sets=sets, rows=1,
    ) as engine:  # fmt: skip
        true, false = engine.evaluate(memory.bad_model, list(sets)).result()
    assert (false.correct or 0) > 3 * (true.correct or 0)


def test_a_task_without_classes_is_refused() -> None:
    configuration = load("smoke", settings=("malice.attack=target", "malice.malicious_rate=0.3"))
    population = populate(configuration)
    form = dataclasses.replace(population.data.form, task="regress")
    data = dataclasses.replace(population.data, form=form)
    with pytest.raises(ConfigurationError, match="the task is regress"):
        false_model(
            population.model, data, population.malicious, configuration.local_training(),
            population.initial, "cpu", 0,
        )  # fmt: skip


def test_a_run_without_one_model_is_refused() -> None:
    updates = {ClientId(0): np.ones(3, dtype=np.float32)}
    context = AttackRound(SEED, updates)
    with pytest.raises(
        ConfigurationError, match="'target' plays the rule of a committee or a serv"
    ):
        Attackers(frozenset({ClientId(0)}), "target").corrupt(updates, context)


def test_the_weights_are_no_base_of_a_direction() -> None:
    settings = ("malice.attack=noise", "malice.malicious_rate=0.3", "malice.on=weights")
    with pytest.raises(ConfigurationError, match="'noise' is made of directions"):
        load("smoke", settings=settings)


def _honest(seed: int, noise: float = 0.2) -> tuple[np.ndarray, ...]:
    return tuple(u for c, u in _updates(seed, noise).items() if c not in MALICIOUS)


def _updates(seed: int, noise: float = 0.2) -> dict[ClientId, np.ndarray]:
    """Updates of 30 clients: one direction and noise of each."""
    noises = noise * np.random.default_rng(seed).standard_normal((30, DIMENSION))
    updates = (np.eye(DIMENSION)[0] + noises).astype(np.float32)
    return {ClientId(client): update for client, update in enumerate(updates)}
