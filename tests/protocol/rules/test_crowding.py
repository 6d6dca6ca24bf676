"""Crowding: who pulls the same way once the common direction is taken out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.rules.crowding import base_of, crowding_of

values = st.lists(st.floats(0, 50), min_size=2, max_size=12)


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


def test_a_pull_within_the_allowance_costs_nothing() -> None:
    # Honest pairs share a cosine of .5, attackers one of .7: .49 is below 2.5 times .25.
    cosines = np.eye(8)
    for first, cosine in ((0, 0.5), (2, 0.5), (4, 0.5), (6, 0.7)):
        cosines[first, first + 1] = cosines[first + 1, first] = cosine
    crowding = crowding_of(cosines, np.zeros(8))
    assert crowding.base == pytest.approx(0.25)
    assert crowding.values[6] == pytest.approx(0.49)
    assert crowding.factors.tolist() == [1] * 8


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
