"""The attackers that know the rule in force: by pencil, against the rule, and in whole runs."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.adversaries.attackers import (
    Attackers,
    AttackMemory,
    AttackRound,
    false_model,
)
from clients.attacks.adaptive import Line, accepted_up_to, inner_products, pair_distances
from clients.attacks.registry import ATTACKS, attack_named
from clients.attacks.updates import (
    AttackHistory,
    AttackInput,
    AttackParameters,
    UpdateAttack,
    min_max,
)
from clients.configuration.loading import load
from clients.configuration.schema import Attacking
from clients.datasets.federated_data import Samples
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate
from clients.training.engine_factory import open_engine
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import ClientId

ADAPTIVE = attack_named("adaptive")


def rules(**protocol: Any) -> Parameters:
    """Rules of 60 clients of which 30 are active: C = 12, n = 18, m = 7."""
    given_ = [f"protocol.{name}={value}" for name, value in protocol.items()]
    return load("digits", settings=tuple(given_)).parameters(dimension=1)


ROBUST = load("robust").parameters(dimension=1)


def asked(colluders: Any, parameters: Parameters | None, **context: Any) -> AttackInput:
    known = np.array(colluders, dtype=np.float32)
    context = {"trainers": 18, "attacking_trainers": len(known)} | context
    rng = np.random.default_rng(0)
    return AttackInput(known[0], known, rng, 1.0, parameters=parameters, **context)


def sent(colluders: Any, parameters: Parameters | None, **context: Any) -> np.ndarray:
    forged = ADAPTIVE.forge(asked(colluders, parameters, **context))
    assert forged.dtype == np.float32
    return forged


def test_it_goes_beyond_the_origin_by_the_honest_spread() -> None:
    # (3, 0) and (0, 4) are 5 apart. -s times the one is as far from the other at s = 1.
    found = sent([[3, 0], [0, 4]], rules())
    np.testing.assert_allclose(found, [-1.5, -2], rtol=1e-6)


def test_among_close_updates_it_stays_between_them_and_the_origin() -> None:
    # 2 and 4: squared distance 4. -4 s from 2 and -2 s from 4: 10 + 16 s + 10 s² = 4 at s = -0.6.
    assert sent([[2], [4]], rules()) == pytest.approx([1.8])


def test_where_the_others_have_fewer_places_it_goes_less_far() -> None:
    # Squared distances of 0, 1, 3 to the others: 1 + 9, 1 + 4, 9 + 4, so scores of 5, 2.5, 6.5.
    updates = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    distances = pair_distances(inner_products(updates))
    assert distances.tolist() == [[0, 1, 9], [1, 0, 4], [9, 4, 0]]
    for attacking, limit in ((1, 5.0), (5, 2.5), (7, 2.5), (18, 2.5)):
        context = asked([[0], [1], [3]], rules(), attacking_trainers=attacking)
        assert accepted_up_to(context, distances) == limit, f"m = 7, f = {attacking}"


def test_strategy_two_accepts_whatever_is_farthest() -> None:
    assert sent([[1, 0], [3, 2]], rules(strategy=2)).tolist() == [-200, -100]


def test_alone_it_cannot_estimate_and_sends_its_own_update() -> None:
    for parameters in (None, rules(), ROBUST):
        assert sent([[1, -2]], parameters).tolist() == [1, -2]


def test_where_there_is_no_committee_it_is_min_max() -> None:
    context = asked([[1, 0], [3, 2], [0, 1]], None)
    assert np.array_equal(ADAPTIVE.forge(context), min_max(context))


def test_under_direction_it_stops_just_below_a_right_angle() -> None:
    # References (1, 0) of length 1: at 89 degrees, twice as long as they are.
    found = sent([[1, 0], [1, 0]], ROBUST)
    np.testing.assert_allclose(np.abs(found), [2 * 0.0174524, 2 * 0.9998477], rtol=1e-5)
    assert found[0] > 0


def test_as_a_member_under_direction_it_reverses_the_colluders_mean() -> None:
    # Unit updates (1, 0) and (0, 1), lengths 1 and 3: twice their median, backwards.
    found = sent([[1, 0], [0, 3]], ROBUST, is_member=True)
    np.testing.assert_allclose(found, [-4 / np.sqrt(2)] * 2, rtol=1e-6)


def test_its_drift_direction_is_the_same_in_every_round() -> None:
    first, second = (_updates(seed, spread=0.1)[1] for seed in (1, 2))
    assert abs(_cosine(first.mean(axis=0), second.mean(axis=0))) < 0.3
    assert _cosine(sent(first, ROBUST), sent(second, ROBUST)) > 0.8


def test_under_displacement_it_follows_it_and_opposes_the_colluders() -> None:
    rng = np.random.default_rng(1)
    travel, common = np.linalg.qr(rng.standard_normal((400, 2)))[0].T
    colluders = 0.5 * travel + common + 0.02 * rng.standard_normal((6, 400))
    own = sent(colluders, ROBUST)
    found = sent(colluders, ROBUST, travel=travel.astype(np.float32))
    assert own @ common > 0
    assert found @ common < own @ common
    assert found @ travel > 0


@given(seed=st.integers(0, 2**32 - 1), step=st.floats(-1, 20), count=st.integers(2, 6))
@settings(max_examples=40)
def test_the_line_has_the_distances_of_what_is_sent(seed: int, step: float, count: int) -> None:
    updates = np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)
    wide = updates.astype(np.float64)
    found = Line.of(inner_products(updates)).distances(step)
    for c in range(count):
        mean = np.delete(wide, c, 0).mean(axis=0)
        expected = float(np.linalg.norm(-step * mean - wide[c])) ** 2
        assert found[c] == pytest.approx(expected, rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_one_step_farther_the_colluders_would_not_accept_it(seed: int) -> None:
    context = asked(_updates(seed, spread=1.0)[1], rules(), attacking_trainers=5)
    products = inner_products(context.colluders)
    limit = accepted_up_to(context, pair_distances(products))
    step = -float(ADAPTIVE.forge(context) @ context.mean / (context.mean @ context.mean))
    line = Line.of(products)
    assert line.distances(step * 0.999).mean() <= limit < line.distances(step * 1.001).mean()


def test_strategy_one_accepts_all_of_it_every_second_round() -> None:
    accepted = 0
    for seed in range(20):
        honest, colluders = _updates(seed, spread=1.0)
        forged = sent(colluders, rules(), attacking_trainers=5).astype(np.float64)
        committee, trainers = honest[:12], honest[12:25]
        scores = [((committee - one) ** 2).sum(axis=1).mean() for one in (forged, *trainers)]
        accepted += sum(score < scores[0] for score in scores[1:]) <= 7 - 5  # m - f
        assert forged @ colluders.mean(axis=0) < 0
    assert accepted >= 8


def test_strategy_three_rejects_most_of_what_all_attackers_send_alike(tmp_path: Path) -> None:
    attacked = ("malice.attack=adaptive", "malice.malicious_rate=0.2", "protocol.rounds=8")
    with open_memory_run(tmp_path, "run", load("robust", settings=attacked)) as run:
        rows = run.go_on(lambda _: None)
    trained = sum(row.malicious_trained for row in rows)
    assert trained > 10
    assert sum(row.malicious_accepted for row in rows) < 0.5 * trained


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _updates(seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(60) / np.sqrt(60)
    noise = spread * rng.standard_normal((34, 60))
    updates = (common + noise).astype(np.float32)
    return updates[:25], updates[25:]


RULE_AWARE = sorted(name for name, attack in ATTACKS.items() if attack.needs_history)
SEED = bytes(range(32))
MALICIOUS = tuple(map(ClientId, (1, 6, 8, 20, 22, 25)))
MEMBERS = tuple(map(ClientId, range(12)))
DIMENSION = 40


def asked_in_a_round(colluders: Any, factor: float = 1.0, **context: Any) -> AttackInput:
    known = np.array(colluders, dtype=np.float32)
    model = np.zeros(known.shape[1], dtype=np.float32)
    bad_model = np.zeros_like(model)
    bad_model[1] = -5
    history = AttackHistory(bad_model, context.pop("published", ()))
    known_too: dict[str, Any] = {"model": model, "history": history, "trainers": 18, "members": 12}
    return AttackInput(known[0], known, np.random.default_rng(0), factor, **(known_too | context))


def sent_in_a_round(
    attack: str,
    honest: int = 0,
    published: int = 1,
    seed: bytes = SEED,
    drift: int | None = None,
    rounds: tuple[tuple[np.ndarray, ...], ...] | None = None,
    only: Attacking | None = None,
) -> np.ndarray:
    rules = load("robust").parameters(DIMENSION)
    model = np.zeros(DIMENSION, dtype=np.float32)
    updates = {**_round_updates(honest), **{c: _round_updates(7)[c] for c in MALICIOUS}}
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


@cache
def usually_sent(attack: str) -> np.ndarray:
    """Return what is sent in a round without further settings; nobody may change it."""
    return sent_in_a_round(attack)


def test_attackers_wait_until_they_send_half_of_a_round() -> None:
    forge_all = ATTACKS["half"].forge_all
    assert forge_all is not None
    known = np.stack(_honest(7))
    rules = load("robust").parameters(DIMENSION)
    for others, is_half in ((1, False), (0, True)):
        size = 2 * len(known) + others
        attacker = asked_in_a_round(known, parameters=rules, published=(_honest(1),), seats=(0, 1))
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


def test_tail_sends_honest_updates_of_rounds_before_farthest_against_the_drift() -> None:
    # Along e, the first axis: the updates have their own numbers, some of them an axis apart.
    before = (_lines(3, -5, 0), _lines(-4, 2))
    sent = sent_in_a_round("tail", rounds=before, drift=0)
    assert sorted(sent[:, 0].tolist()) == [-5, -5, -4, 0, 2, 3]
    published = {update.tobytes() for updates in before for update in updates}
    assert {row.tobytes() for row in sent} == published
    # Among more than there are attackers, each sends another one, and none of the nearest.
    many = sent_in_a_round(
        "tail", rounds=(_lines(*range(20)), _lines(*range(-1, -20, -1))), drift=0
    )
    assert many[:, 0].tolist() == [-19, -18, -17, -16, -15, -14]
    seated = sent_in_a_round("tail", rounds=(_lines(*range(20)),), drift=0, only="members")
    is_member = np.isin(MALICIOUS, MEMBERS)
    assert seated[is_member, 0].tolist() == list(range(int(is_member.sum())))


def test_in_the_first_round_tail_sends_the_colluders_own_updates() -> None:
    own = {_round_updates(7)[client].tobytes() for client in MALICIOUS}
    assert {row.tobytes() for row in sent_in_a_round("tail", rounds=())} == own


def _lines(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(value * np.eye(DIMENSION, dtype=np.float32)[0] for value in values)


def test_where_all_updates_are_averaged_target_goes_straight() -> None:
    sent = attack_named("target").forge(asked_in_a_round([[1, 0, 0], [3, 0, 0]]))
    np.testing.assert_allclose(sent, [0, 4, 0], rtol=1e-6, atol=1e-6)


def test_noise_hides_the_goal_in_noise_of_each_attackers_own() -> None:
    attack = attack_named("noise")
    colluders = np.zeros((3, 4000))
    colluders[:, 0] = 2
    travel = np.eye(4000, dtype=np.float32)[2]
    assert attack.forge_all is not None
    sent = attack.forge_all(asked_in_a_round(colluders, factor=30.0, travel=travel)) / 4
    np.testing.assert_allclose(sent[:, 1], 0.5, atol=0.05)
    np.testing.assert_allclose(sent[:, 2], 0.3, atol=0.06)
    rest = sent.copy()
    rest[:, 1:3] = 0
    cosines = rest @ rest.T / np.outer(*[np.linalg.norm(rest, axis=1)] * 2)
    assert np.abs(cosines - np.eye(3)).max() < 0.1


@pytest.mark.parametrize("attack", RULE_AWARE)
def test_honest_updates_of_the_round_change_nothing(attack: str) -> None:
    first, other = usually_sent(attack), sent_in_a_round(attack, honest=3)
    assert np.array_equal(first, other)
    assert np.isfinite(first).all()


@pytest.mark.parametrize("attack", ["worst-back", "worst-full"])
def test_updates_of_the_round_before_change_what_is_sent(attack: str) -> None:
    assert not np.array_equal(usually_sent(attack), sent_in_a_round(attack, published=2))


@pytest.mark.parametrize("attack", RULE_AWARE)
@pytest.mark.parametrize("only", ["members", "trainers"])
def test_attackers_are_honest_as_what_they_do_not_attack_as(attack: str, only: Attacking) -> None:
    is_member = np.isin(MALICIOUS, MEMBERS)
    is_attacking = is_member == (only == "members")
    honest = np.stack([_round_updates(7)[client] for client in MALICIOUS])
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


def test_target_moves_the_model_towards_the_false_one() -> None:
    # The rule accepts them: they follow the honest direction as far as it asks.
    sent = sent_in_a_round("target")
    assert sent[:, 1].mean() > 1
    assert _round_updates(0)[ClientId(0)][1] < 1


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
        assert one.history is not None
        assert len(one.history.published) == len(rounds)
        assert all(map(np.array_equal, one.history.published, rounds))
    assert len({id(one.history and one.history.bad_model) for one in seen}) == 1


def test_the_false_model_answers_with_the_next_class() -> None:
    configuration = load("smoke", settings=("malice.attack=target", "malice.malicious_rate=0.3"))
    population = populate(configuration)
    memory = population.attack_memory(configuration)
    assert memory is not None
    x, y = population.clean.test
    sets = {"true": Samples(x, y), "next": Samples(x, (y + 1) % population.clean.form.classes)}
    training = configuration.training
    with open_engine(
        population.model, population.clean, training, device="cpu", workers=1, path="plain",
        sets=sets, rows=1,
    ) as engine:  # fmt: skip
        true, false = engine.evaluate(memory.bad_model, list(sets))()
    assert (false.correct or 0) > 3 * (true.correct or 0)


def test_a_task_without_classes_is_refused() -> None:
    configuration = load("smoke", settings=("malice.attack=target", "malice.malicious_rate=0.3"))
    population = populate(configuration)
    form = dataclasses.replace(population.data.form, task="regress")
    data = dataclasses.replace(population.data, form=form)
    with pytest.raises(ConfigurationError, match="the task is regress"):
        false_model(
            population.model, data, population.malicious, configuration.training,
            population.initial, "cpu", 0,
        )  # fmt: skip


def test_a_run_without_one_model_is_refused() -> None:
    updates = {ClientId(0): np.ones(3, dtype=np.float32)}
    context = AttackRound(SEED, updates)
    with pytest.raises(ConfigurationError, match="'target' needs one model of all"):
        Attackers(frozenset({ClientId(0)}), "target").corrupt(updates, context)


def test_the_weights_are_no_base_of_a_direction() -> None:
    settings = ("malice.attack=noise", "malice.malicious_rate=0.3", "malice.on=weights")
    with pytest.raises(ConfigurationError, match="'noise' is made of directions"):
        load("smoke", settings=settings)


def _honest(seed: int, noise: float = 0.2) -> tuple[np.ndarray, ...]:
    return tuple(u for c, u in _round_updates(seed, noise).items() if c not in MALICIOUS)


def _round_updates(seed: int, noise: float = 0.2) -> dict[ClientId, np.ndarray]:
    noises = noise * np.random.default_rng(seed).standard_normal((30, DIMENSION))
    updates = (np.eye(DIMENSION)[0] + noises).astype(np.float32)
    return {ClientId(client): update for client, update in enumerate(updates)}
