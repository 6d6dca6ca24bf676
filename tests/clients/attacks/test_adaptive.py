"""The attacker that knows the rule in force: by pencil, and against the rule itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.attacks.registry import attack_named
from clients.attacks.updates.adaptive.estimate import accepted_up_to
from clients.attacks.updates.adaptive.step_search import (
    Line,
    largest,
    pair_distances,
    tensor_products,
)
from clients.attacks.updates.min_max import min_max
from clients.attacks.updates.update_attack import AttackInput
from clients.configuration.loading import load
from ledger.protocol.rules.direction import DirectionMeasure
from ledger.protocol.rules.distance import ServerDirection
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.protocol.parameters import Parameters

ADAPTIVE = attack_named("adaptive")


def rules(**protocol: Any) -> Parameters:
    """Rules of 60 clients of which 30 are active: C = 12, n = 18, m = 7."""
    given_ = [f"protocol.{name}={value}" for name, value in protocol.items()]
    return load("digits", settings=tuple(given_)).parameters(dimension=1)


ROBUST = {"strategy": 3, "scoring": "median", "distance": "direction", "threshold": "direction"}


def asked(colluders: Any, parameters: Parameters | None, **context: Any) -> AttackInput:
    known = np.array(colluders, dtype=np.float32)
    context = {"trainers": 18, "attacking_trainers": len(known)} | context
    rng = np.random.default_rng(0)
    return AttackInput(known[0], known, rng, 1.0, parameters=parameters, **context)


def sent(colluders: Any, parameters: Parameters | None, **context: Any) -> np.ndarray:
    forged = ADAPTIVE.forge(asked(colluders, parameters, **context))
    assert forged.dtype == np.float32
    return forged


@pytest.mark.parametrize("distance", ["squared", "l2", "per_tensor"])
@pytest.mark.parametrize("strategy", [1, 3])
def test_it_goes_beyond_the_origin_by_the_honest_spread(distance: str, strategy: int) -> None:
    # (3, 0) and (0, 4): 5 apart, or 3 + 4 tensor by tensor. -s times the one is as far from the
    # other at s = 1. Both distances are the same, so that their spread adds nothing.
    layout = (("first", (1,)), ("second", (1,)))
    found = sent([[3, 0], [0, 4]], rules(distance=distance, strategy=strategy), layout=layout)
    np.testing.assert_allclose(found, [-1.5, -2], rtol=1e-6)


def test_among_close_updates_it_stays_between_them_and_the_origin() -> None:
    # 2 and 4: squared distance 4. -4 s from 2 and -2 s from 4: 10 + 16 s + 10 s² = 4 at s = -0.6.
    assert sent([[2], [4]], rules()) == pytest.approx([1.8])


def test_where_the_others_have_fewer_places_it_goes_less_far() -> None:
    # Squared distances of 0, 1, 3 to the others: 1 + 9, 1 + 4, 9 + 4, so scores of 5, 2.5, 6.5.
    updates = np.array([[[0.0], [1.0], [3.0]]])
    distances = pair_distances(updates @ updates.transpose(0, 2, 1), is_squared=True)
    assert distances.tolist() == [[0, 1, 9], [1, 0, 4], [9, 4, 0]]
    for attacking, limit in ((1, 5.0), (5, 2.5), (7, 2.5), (18, 2.5)):
        context = asked([[0], [1], [3]], rules(), attacking_trainers=attacking)
        assert accepted_up_to(context, distances) == limit, f"m = 7, f = {attacking}"


def test_strategy_two_accepts_whatever_is_farthest() -> None:
    for distance in ("squared", "direction"):
        found = sent([[1, 0], [3, 2]], rules(strategy=2, distance=distance))
        assert found.tolist() == [-200, -100]


def test_alone_it_cannot_estimate_and_sends_its_own_update() -> None:
    for parameters in (None, rules(), rules(**ROBUST)):
        assert sent([[1, -2]], parameters).tolist() == [1, -2]


def test_where_there_is_no_committee_it_is_min_max() -> None:
    context = asked([[1, 0], [3, 2], [0, 1]], None)
    assert np.array_equal(ADAPTIVE.forge(context), min_max(context))


def test_under_direction_it_stops_just_below_a_right_angle() -> None:
    # References (1, 0) of length 1: at 89 degrees, twice as long as they are.
    found = sent([[1, 0], [1, 0]], rules(**ROBUST))
    np.testing.assert_allclose(np.abs(found), [2 * 0.0174524, 2 * 0.9998477], rtol=1e-5)
    assert found[0] > 0


def test_as_a_member_under_direction_it_reverses_the_colluders_mean() -> None:
    # Unit updates (1, 0) and (0, 1), lengths 1 and 3: twice their median, backwards.
    found = sent([[1, 0], [0, 3]], rules(**ROBUST), is_member=True)
    np.testing.assert_allclose(found, [-4 / np.sqrt(2)] * 2, rtol=1e-6)


def test_its_drift_direction_is_the_same_in_every_round() -> None:
    first, second = (_updates(seed, spread=0.1)[1] for seed in (1, 2))
    assert abs(_cosine(first.mean(axis=0), second.mean(axis=0))) < 0.3
    assert _cosine(sent(first, rules(**ROBUST)), sent(second, rules(**ROBUST))) > 0.8


def test_under_displacement_it_follows_it_and_opposes_the_colluders() -> None:
    rng = np.random.default_rng(1)
    travel, common = np.linalg.qr(rng.standard_normal((400, 2)))[0].T
    colluders = 0.5 * travel + common + 0.02 * rng.standard_normal((6, 400))
    own = sent(colluders, rules(**ROBUST), travel=travel.astype(np.float32))
    with_travel = rules(**ROBUST, reference="travel")
    found = sent(colluders, with_travel, travel=travel.astype(np.float32))
    assert own @ common > 0
    assert found @ common < 0
    assert found @ travel > 0


def test_equal_updates_and_zeros_leave_something_finite() -> None:
    for parameters in (rules(), rules(strategy=3, distance="l2"), rules(**ROBUST)):
        assert np.isfinite(sent(np.ones((3, 4)), parameters)).all()
        assert sent(np.zeros((3, 4)), parameters).tolist() == [0] * 4


@given(seed=st.integers(0, 2**32 - 1), step=st.floats(-1, 20), count=st.integers(2, 6))
@settings(max_examples=40)
def test_the_line_has_the_distances_of_what_is_sent(seed: int, step: float, count: int) -> None:
    updates = np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)
    wide = updates.astype(np.float64)
    parts = (wide[:, :2], wide[:, 2:])
    for is_squared in (True, False):
        found = Line.of(tensor_products(updates, (2, 3)), is_squared=is_squared).distances(step)
        for c in range(count):
            means = [np.delete(part, c, 0).mean(axis=0) for part in parts]
            norms = [
                float(np.linalg.norm(-step * mean - part[c]))
                for mean, part in zip(means, parts, strict=True)
            ]
            expected = sum(norm**2 if is_squared else norm for norm in norms)
            assert found[c] == pytest.approx(expected, rel=1e-9)


@given(edge=st.floats(-1, 100))
def test_halving_ends_just_below_the_edge(edge: float) -> None:
    found = largest(lambda step: step <= edge, -1.0, 100.0)
    assert found <= edge
    assert found == pytest.approx(edge, abs=1e-9)


def test_halving_begins_where_it_may_not_go() -> None:
    assert largest(lambda _: False, -1.0, 100.0) == -1
    assert largest(lambda _: True, -1.0, 100.0) == 100


@given(seed=st.integers(0, 2**32 - 1), strategy=st.sampled_from([1, 3]))
@settings(max_examples=20)
def test_one_step_farther_the_colluders_would_not_accept_it(seed: int, strategy: int) -> None:
    context = asked(_updates(seed, spread=1.0)[1], rules(strategy=strategy), attacking_trainers=5)
    products = tensor_products(context.colluders, (60,))
    limit = accepted_up_to(context, pair_distances(products, is_squared=True))
    step = -float(ADAPTIVE.forge(context) @ context.mean / (context.mean @ context.mean))
    line = Line.of(products, is_squared=True)
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


@pytest.mark.parametrize("reference", ["own", "travel"])
def test_the_rule_of_directions_accepts_it_in_most_rounds(reference: str) -> None:
    parameters = rules(**ROBUST, reference=reference)
    accepted = 0
    for seed in range(20):
        honest, colluders = _updates(seed, spread=0.3)
        travel = honest.mean(axis=0).astype(np.float32)
        forged = sent(colluders, parameters, travel=travel)
        updates = [*honest[:25].astype(np.float32), *[forged] * 5]
        clients = {ClientId(client): update for client, update in enumerate(updates)}
        members = tuple(map(ClientId, range(12)))
        server_direction = (
            None
            if parameters.direction_weight is None
            else ServerDirection(travel, members, parameters.direction_weight)
        )
        measure = DirectionMeasure(clients, server_direction)
        accepted += np.median([measure.between(forged, updates[c]) for c in members]) < 2
    assert accepted >= 12


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _updates(seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """25 honest updates and those of 9 colluders: one direction, and as much noise as is said."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(60) / np.sqrt(60)
    noise = spread * rng.standard_normal((34, 60))
    updates = (common + noise).astype(np.float32)
    return updates[:25], updates[25:]
