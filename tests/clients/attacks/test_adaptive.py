"""The attacker that knows the rule in force: by pencil, and against the rule itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.attacks.registry import attack_named
from clients.attacks.updates.adaptive.estimate import accepted_up_to
from clients.attacks.updates.adaptive.step_search import Line, inner_products, pair_distances
from clients.attacks.updates.min_max import min_max
from clients.attacks.updates.update_attack import AttackInput
from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.parameters import Parameters

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
