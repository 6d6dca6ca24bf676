"""Crowding: who pulls the same way once the common direction is taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.inputs import Participants, distance_context
from ledger.protocol.rules.crowding import base_of, crowding_of
from ledger.protocol.rules.direction import DirectionMeasure
from ledger.protocol.rules.distance import DistanceContext, ServerDirection, plain_distances
from ledger.protocol.rules.reference import CROWD, DirectionWeight, LengthPenalty
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.types import ClientId
from tests.protocol.support import PENCIL, f32
from tests.support.keys import ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

values = st.lists(st.floats(0, 50), min_size=2, max_size=12)


def crowded(*updates: NDArray[np.float32]) -> DirectionMeasure:
    by_client = {ClientId(i): update for i, update in enumerate(updates)}
    return DirectionMeasure(by_client, None, LengthPenalty.CROWDED_SUMMAND)


def base_in(*crowdings: float) -> float:
    return base_of(np.array(crowdings))


def test_updates_at_right_angles_or_opposite_do_not_crowd() -> None:
    crowding = crowding_of(np.array([[1, 0, -1], [0, 1, 0], [-1, 0, 1.0]]), np.zeros(3))
    assert crowding.values.tolist() == [0, 0, 0]
    assert crowding.base == 1e-3
    assert crowding.factors.tolist() == [1, 1, 1]


def test_the_common_direction_is_taken_out_of_each_pair() -> None:
    # Two with a cosine of .6 to it share .36 of one another by that alone.
    along = np.array([0.6, 0.6])
    assert crowding_of(np.array([[1, 0.36], [0.36, 1]]), along).values.tolist() == [0, 0]
    same = crowding_of(np.ones((2, 2)), along).values
    assert same == pytest.approx([1, 1], rel=1e-15)
    # Both along it: their residuals are rounding, and are divided by a quarter at least.
    assert crowding_of(np.full((2, 2), 1 + 1e-15), np.ones(2)).values.max() < 1e-28


def test_the_base_by_pencil_is_a_median_of_those_who_are_not_lonely() -> None:
    assert base_in() == base_in(5.0) == 1e-3
    assert base_in(1, 2) == 1.5
    assert base_in(0, 0, 0, 1, 1) == 1e-3, "nobody is lonelier than the median"
    # 0 is lonely, 1 is two thirds of the median 1.5 and is not: rank 1.5 becomes 2.
    assert base_in(0, 1, 2, 3) == 2
    # .5 is half of the median 1, and half lonely: rank 1 becomes 1.25.
    assert base_in(0.5, 1, 3) == 1.5
    # Of a median of a ten-thousandth a tenth is certain: rank 1 becomes 1.05.
    assert base_in(0, 1e-4, 1) == pytest.approx(0.95e-4 + 0.05, rel=1e-12)
    assert base_in(0, 5e-324, 1) == 1e-3, "any number over a subnormal median is not lonely"


@given(crowdings=values, data=st.data())
def test_the_base_lies_among_the_crowdings_and_is_continuous(
    crowdings: list[float], data: st.DataObject
) -> None:
    base = base_in(*crowdings)
    assert max(1e-3, float(np.median(crowdings))) <= base <= max(1e-3, *crowdings)
    assert base_in(*data.draw(st.permutations(crowdings))) == pytest.approx(base, rel=1e-9)
    moved = [crowding * (1 + 1e-9) for crowding in crowdings]
    assert base_in(*moved) == pytest.approx(base, rel=1e-4)


def test_three_that_pull_together_are_far_from_everybody() -> None:
    eye = np.eye(12, dtype=np.float32)
    pull = [(eye[0] + 0.5 * eye[i]).astype(np.float32) for i in range(1, 4)]
    others = list(eye[4:])
    measure = crowded(*pull, *others)
    # They share a cosine of .8: each crowds by .64 twice, the others not at all.
    assert measure.crowding.values[:3] == pytest.approx([1.28] * 3, rel=1e-6)
    assert measure.crowding.values[3:].tolist() == [0] * 8
    assert measure.crowding_excess(pull[0]) == pytest.approx(512, rel=1e-6)
    assert measure.between(pull[0], pull[1]) > 6e10
    assert measure.between(others[1], others[2]) == 2


def test_a_pull_within_the_allowance_costs_nothing() -> None:
    # Honest pairs share a cosine of .5, attackers one of .7: .49 is below 2.5 times .25.
    cosines = np.eye(8)
    for first, cosine in ((0, 0.5), (2, 0.5), (4, 0.5), (6, 0.7)):
        cosines[first, first + 1] = cosines[first + 1, first] = cosine
    crowding = crowding_of(cosines, np.zeros(8))
    assert crowding.base == pytest.approx(0.25)
    assert crowding.values[6] == pytest.approx(0.49)
    assert crowding.factors.tolist() == [1] * 8


def test_zeros_have_no_crowding_and_move_no_base() -> None:
    rows = [f32(1, 0), f32(1, 1), f32(0, 1)]
    zero = f32(0, 0)
    measure = crowded(*rows, zero)
    assert measure.crowding.values.tolist() == crowded(*rows).crowding.values.tolist()
    assert measure.crowding_excess(zero) == 1.0
    assert measure.between(zero, rows[0]) == measure.between(rows[0], zero) == 4.0
    assert crowded().crowding.values.tolist() == []


def test_a_sum_penalises_long_updates_that_are_identical() -> None:
    # Its length 4 is twice twice the median of 1: f is 4.
    updates = {ClientId(i): f32(length) for i, length in enumerate((1, 1, 4))}
    product = DirectionMeasure(updates)
    summand = DirectionMeasure(updates, None, LengthPenalty.SUMMAND)
    assert product.between(updates[ClientId(2)], updates[ClientId(0)]) == 0
    assert summand.between(updates[ClientId(2)], updates[ClientId(0)]) == 3
    assert summand.between(updates[ClientId(1)], updates[ClientId(0)]) == 0


def test_all_updates_open_the_gate_that_a_captured_committee_shuts() -> None:
    layout = (("w", (1,)),)
    seats = Participants(ids(0, 1, 2), ids(3, 4, 5, 6, 7, 8), frozenset())
    travel = f32(1.0)
    updates = {ClientId(i): f32(-1.0 if i < 3 else 1.0) for i in range(9)}
    multiples = {}
    for name in ("travel", "travel-sum", "crowd"):
        parameters = replace(PENCIL, distance="direction", reference=name)
        context = distance_context(parameters, layout, 2, seats, travel)
        measure = DirectionMeasure(updates, context.server_direction, context.penalty)
        multiples[name] = measure.multiple
    assert multiples == {"travel": 0.0, "travel-sum": 0.0, "crowd": 3.0}


def test_the_margin_is_far_below_any_decision() -> None:
    rows = [f32(1, 0), f32(0, 1), f32(-1, 0)]
    measure = crowded(*rows)
    assert measure.tolerance(rows[0], 2.0) == pytest.approx(3e-9)
    # Where the sum alone is 2, g is 3 at most, and its fifth power of the fourth root below 4.
    assert 1e-9 * 2 + 1e-9 * 3**1.25 < 1e-8


def _tuned(clients: int, lonely: int, pulling: int, middle: float, beyond: float) -> np.ndarray:
    """Return cosines for which the base lies just beyond the last honest crowding.

    Args:
        clients: n.
        lonely: how many of them are lonely to a degree.
        pulling: how many are one vector.
        middle: the median crowding.
        beyond: part of the way from the last honest crowding to theirs.
    """
    honest = clients - lonely - pulling
    degree = (2 * (lonely + honest - 1) - (clients - 1) + 2 * beyond) / lonely
    degree /= min(1.0, 1000 * middle)
    assert 0 < degree < 1
    cosines = np.eye(clients)
    ends = [(0, lonely, middle * (2 - degree) / 3), (lonely, lonely + honest, middle)]
    for start, end, crowding in ends:
        cosines[start:end, start:end] = np.sqrt(crowding / (end - start - 1))
    cosines[lonely + honest :, lonely + honest :] = 1
    np.fill_diagonal(cosines, 1)
    return cosines


@pytest.mark.parametrize("beyond", [1e-9, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize(
    ("clients", "lonely", "pulling"), [(30, 13, 9), (108, 50, 32), (416, 200, 124)]
)
def test_no_rounding_of_cosines_goes_beyond_the_margin(
    clients: int, lonely: int, pulling: int, beyond: float
) -> None:
    # A base between .001 and 100 turns the rounding of ranks into that of g, a thousand times and
    # more what the same rounding does to a cosine.
    cosines = _tuned(clients, lonely, pulling, 1e-3, beyond)
    exact = crowding_of(cosines, np.zeros(clients))
    rng = np.random.default_rng(clients)
    for _ in range(3):
        noise = np.triu(rng.choice([-1e-15, 1e-15], cosines.shape), 1)
        found = crowding_of(cosines + noise + noise.T, 1e-15 * rng.uniform(-1, 1, clients))
        margins = 1e-9 * (exact.factors - 1) + 1e-9 * exact.excess**5
        assert (np.abs(found.factors - exact.factors) <= margins).all()


def test_crowding_of_a_round_goes_by_all_its_updates_alone() -> None:
    rng = np.random.default_rng(3)
    updates = {ClientId(i): rng.standard_normal(9).astype(np.float32) for i in range(7)}
    travel = ServerDirection(f32(*rng.standard_normal(9)), tuple(updates), DirectionWeight(1, 9, 3))
    context = DistanceContext((), travel, CROWD.penalty)
    rule = DISTANCES["direction"]
    whole = plain_distances(rule, context, updates, ids(0, 1, 2))
    assert (plain_distances(rule, context, updates, ids(1)) == whole[1]).all()
    fewer = {client: update for client, update in updates.items() if client != 6}
    assert (plain_distances(rule, context, fewer, ids(1))[0] != whole[1, :6]).any()
