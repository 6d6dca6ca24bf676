"""Rules and aggregators on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cmfl
from ledger.protocol.errors import ConfigurationError

RNG = np.random.default_rng(5)
HONEST = RNG.normal(1.0, 0.1, size=(6, 8))
MEMBERS = RNG.normal(1.0, 0.1, size=(4, 8))
UPDATES = np.vstack([HONEST, -HONEST[:2]])


def city_block(update: Any, references: Any) -> Any:
    return np.abs(references - update).sum(axis=1)


def test_distances_have_a_row_for_each_member() -> None:
    table = cmfl.rules.squared([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0]])
    assert table.tolist() == [[0.0, 25.0]]


def test_directions_are_compared_with_those_of_all_other_updates() -> None:
    # Each of the two has the other and the member as peers: medians of two numbers.
    across = cmfl.rules.direction([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]])
    assert across.tolist() == [1.0, 2.0]
    with_zeros = cmfl.rules.direction([[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]])
    assert with_zeros[0] == 4.0


def test_a_travel_moves_strategy_3_towards_it() -> None:
    without = cmfl.rules.direction(UPDATES, MEMBERS)
    along = cmfl.rules.direction(UPDATES, MEMBERS, travel=np.ones(8))
    assert (along[:6] < without[:6] + 0.1).all()
    assert (along[6:] > 3).all()


def test_a_committee_refuses_reversed_updates() -> None:
    accepted = cmfl.rules.accept(UPDATES, MEMBERS)
    assert sorted(accepted.tolist()) == [0, 1, 2, 3, 4, 5]
    nearest = cmfl.rules.accept(UPDATES, MEMBERS, strategy=1, accepted=3)
    scores = cmfl.rules.mean(cmfl.rules.squared(UPDATES, MEMBERS))
    assert nearest.tolist() == np.argsort(scores)[:3].tolist()
    far = cmfl.rules.accept(UPDATES, MEMBERS, strategy=2, accepted=2)
    assert sorted(far.tolist()) == [6, 7]


def test_your_own_distance_ranks_in_strategies_1_and_2() -> None:
    near = cmfl.rules.accept(UPDATES, MEMBERS, strategy=1, distance=city_block, accepted=3)
    means = [np.abs(MEMBERS - update).sum(axis=1).mean() for update in UPDATES]
    assert near.tolist() == np.argsort(means)[:3].tolist()
    far = cmfl.rules.accept(UPDATES, MEMBERS, strategy=2, distance=city_block, accepted=2)
    assert sorted(far.tolist()) == [6, 7]


def test_the_steps_of_a_committee_are_there_one_by_one() -> None:
    scores = cmfl.rules.direction(UPDATES, MEMBERS)
    within = cmfl.rules.within(scores)
    assert within.tolist() == cmfl.rules.accept(UPDATES, MEMBERS).tolist()
    assert set(within.tolist()) == {place for place, s in enumerate(scores) if s < 2}
    assert cmfl.rules.within([2.0, 3.0, 2.5], accepted=2).tolist() == [0, 2]
    assert cmfl.rules.nearest([3.0, 1.0, 1.0], 2).tolist() == [1, 2]
    assert cmfl.rules.farthest([3.0, 1.0, 2.0], 2).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: cmfl.rules.squared([[1.0]], [[1.0, 2.0]]), "updates of 1 numbers and"),
        (lambda: cmfl.rules.squared([[np.nan]], [[1.0]]), "updates: a number is not finite"),
        (lambda: cmfl.rules.nearest([1.0], 2), "accepted = 2: must be 1 to 1"),
        (
            lambda: cmfl.rules.accept([[1.0]], [[1.0]], distance=city_block),
            "strategies 1 and 2 only",
        ),
        (
            lambda: cmfl.rules.accept(
                [[1.0]], [[1.0]], strategy=1, distance=lambda _update, references: -references[0]
            ),
            "distances: each must be finite",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_aggregators_withstand_two_reversed_updates() -> None:
    robust = (
        cmfl.aggregators.krum(UPDATES, f=2),
        cmfl.aggregators.multi_krum(UPDATES, f=2),
        cmfl.aggregators.median(UPDATES),
        cmfl.aggregators.trimmed_mean(UPDATES, f=2),
        cmfl.aggregators.geometric_median(UPDATES, steps=20),
        cmfl.aggregators.median(UPDATES, pre=[("NNM", {"f": 2})]),
    )
    for vector in robust:
        assert vector.shape == (8,)
        assert np.abs(vector - 1.0).max() < 0.5
    clipped = cmfl.aggregators.centered_clipping(UPDATES, tau=1.0, last=np.ones(8), steps=3)
    assert np.abs(clipped - 1.0).max() < 0.5


def test_dnc_needs_chance_and_fltrust_the_update_of_the_server() -> None:
    chance = np.random.default_rng(0)
    filtered = cmfl.aggregators.aggregate("DnC", UPDATES, {"f": 3}, rng=chance)
    assert np.abs(filtered - 1.0).max() < 0.5
    with pytest.raises(ConfigurationError, match="DnC draws: give rng="):
        cmfl.aggregators.aggregate("DnC", UPDATES, {"f": 3})
    trusted = cmfl.aggregators.aggregate("FLTrust", UPDATES, last=np.ones(8))
    assert np.linalg.norm(trusted) <= np.sqrt(8) + 1e-9
    assert np.abs(trusted - 1.0).max() < 0.5


def test_means_are_those_of_the_weights() -> None:
    assert cmfl.aggregators.fedavg([[0.0], [4.0]]).tolist() == [2.0]
    assert cmfl.aggregators.fedavg([[0.0], [4.0]], weights=[3, 1]).tolist() == [1.0]
    chance = np.random.default_rng(0)
    bucketed = cmfl.aggregators.aggregate(
        "FedAvg", HONEST, pre=[("Bucketing", {"s": 2})], rng=chance
    )
    assert bucketed == pytest.approx(HONEST.mean(axis=0))
