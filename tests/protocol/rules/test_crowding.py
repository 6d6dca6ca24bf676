"""Strategy III's distance: the round's own opinion of each update, and who crowds."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.distances import fast_distances
from ledger.protocol.rules.direction import (
    base_of,
    crowding_of,
    direction_distances,
    displacement,
    norm_of,
    window_start,
)
from ledger.protocol.rules.distance import DIRECTION, plain_distances
from ledger.protocol.types import ClientId
from tests.protocol.support import f32
from tests.support.keys import ids

values = st.lists(st.floats(0, 50), min_size=2, max_size=12)


def base_in(*crowdings: float) -> float:
    return base_of(np.array(crowdings))


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


def _tuned(clients: int, lonely: int, pulling: int, middle: float, beyond: float) -> np.ndarray:
    """Return cosines for which the base lies just beyond the last honest crowding."""
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


def test_a_pull_within_the_allowance_costs_nothing() -> None:
    # Honest pairs share a cosine of .5, attackers one of .7: .49 is below 2.5 times .25.
    cosines = np.eye(8)
    for first, cosine in ((0, 0.5), (2, 0.5), (4, 0.5), (6, 0.7)):
        cosines[first, first + 1] = cosines[first + 1, first] = cosine
    crowding = crowding_of(cosines, np.zeros(8))
    assert crowding.base == pytest.approx(0.25)
    assert crowding.values[6] == pytest.approx(0.49)
    assert crowding.factors.tolist() == [1] * 8


def oracle(updates: NDArray[np.float64], travel: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return D of each update, by the formula of the protocol's text and not by its code."""
    norms = np.sqrt((updates**2).sum(1))
    usable, far = norms > 0, np.maximum(1, norms / (2 * np.median(norms) or np.inf)) ** 2
    u, n = updates[usable] / norms[usable, None], int(usable.sum())
    h = np.zeros(u.shape[1]) if travel is None or not travel.any() else unit(travel)
    a, pairs = u @ h, ((u[:, None] - u[None]) ** 2).sum(2)
    b = min(1, 5 * max(0, np.median(a))) if n else 0
    middle = [np.median(np.delete(pairs[k], k)) if n > 1 else 0 for k in range(n)]
    rho = np.maximum(0.5, np.sqrt(np.maximum(0, 1 - a**2)))
    q = (np.maximum(0, (u @ u.T - np.outer(a, a)) / np.outer(rho, rho) * (1 - np.eye(n))) ** 2).sum(
        1
    )
    base, m = 1e-3, np.median(q) if n else 0
    if n > 1:
        lonely = np.clip(2 - 3 * q / m, 0, 1) * min(1, 1000 * m) if m else np.zeros(n)
        base = max(base, np.interp((n - 1 + lonely.sum()) / 2, np.arange(n), np.sort(q)))
    g = np.maximum(1, q / (2.5 * base)) ** 4
    distances = np.full(len(updates), 4.0)
    distances[usable] = (middle + b * ((u - h) ** 2).sum(1)) / (1 + b) + (far[usable] * g - 1)
    return distances


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vector / np.sqrt((vector**2).sum()))


def numbered(rows: Sequence[NDArray[np.float32]]) -> dict[ClientId, NDArray[np.float32]]:
    return {ClientId(place): row for place, row in enumerate(rows)}


def distances(
    rows: Sequence[NDArray[np.float32]], travel: NDArray[np.float32] | None = None
) -> list[float]:
    return list(map(float, direction_distances(numbered(rows), travel).distances))


def test_a_round_by_pencil() -> None:
    # Squared distances from the others: 2 and 2; 2 and 4; 2 and 4.
    rows = [f32(1, 0), f32(0, 1), f32(0, -1)]
    assert distances(rows) == [2, 3, 3]
    # Cosines .6, .8, -.8 with the travel: b is min(1, 5 * .6) = 1, ‖u - h‖² .8, .4, 3.6.
    assert distances(rows, f32(3, 4)) == pytest.approx([1.4, 1.7, 3.3], rel=1e-12)


def test_one_update_alone_has_no_others_to_be_far_from() -> None:
    assert distances([f32(2, 0)]) == [0]
    assert distances([f32(2, 0), f32(0, 0)]) == [0, 4]
    assert distances([f32(0, 0)]) == [4]
    assert distances([]) == []


def test_three_that_pull_together_are_far_from_everybody() -> None:
    eye = np.eye(12, dtype=np.float32)
    pull = [(eye[0] + 0.5 * eye[i]).astype(np.float32) for i in range(1, 4)]
    others = list(eye[4:])
    # They share a cosine of .8: each crowds by .64 twice, the others not at all.
    found = direction_distances(numbered([*pull, *others]), None)
    assert min(found.distances[:3]) > 6e10
    assert found.distances[3:].tolist() == [2] * 8
    assert found.margins[:3] == pytest.approx([1e-9 * 512**5] * 3, rel=1e-5)
    assert found.margins[3:].tolist() == [1e-9] * 8


def test_all_members_compute_the_same_row() -> None:
    rng = np.random.default_rng(3)
    updates = {ClientId(i): rng.standard_normal(9).astype(np.float32) for i in range(7)}
    travel = rng.standard_normal(9).astype(np.float32)
    whole = plain_distances(DIRECTION, travel, updates, ids(0, 1, 2))
    assert (whole == whole[0]).all()
    assert (plain_distances(DIRECTION, travel, updates, ids(1)) == whole[1]).all()
    fewer = {client: update for client, update in updates.items() if client != 6}
    assert (plain_distances(DIRECTION, travel, fewer, ids(1))[0] != whole[1, :6]).any()


def test_no_large_first_number_absorbs_the_others() -> None:
    # The squares of the others are half an ulp of the first one's square, or less.
    update = np.full(1 << 20, 2.0**-27, dtype=np.float32)
    update[0], reference = 1, np.zeros_like(update)
    reference[0], length = -1, sqrt(1 + (len(update) - 1) * 2.0**-54)
    assert norm_of(update) == pytest.approx(length, rel=3e-13, abs=0)
    expected = pytest.approx([2 + 2 / length] * 2, rel=3e-13, abs=0)
    assert distances([update, reference]) == expected


def test_updates_and_travel_are_of_one_length() -> None:
    for rows, travel in (([f32(1), f32(1, 2)], None), ([f32(1)], f32(1, 2))):
        with pytest.raises(ValueError, match="differ in length"):
            direction_distances(numbered(rows), travel)


def require_oracle(rows: list[NDArray[np.float32]], travel: NDArray[np.float32] | None) -> None:
    updates = numbered(rows)
    wide = None if travel is None else travel.astype(np.float64)
    expected = oracle(np.array(rows, dtype=np.float64), wide)
    margins = 1e-9 * expected + direction_distances(updates, travel).margins
    for compute in (plain_distances, fast_distances()):
        found = compute(DIRECTION, travel, updates, tuple(updates))
        assert (np.abs(found - expected) <= margins / 10).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_distances_are_those_of_the_formula(data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 6))
    number = st.floats(-100, 100, width=32).map(lambda x: np.float32(x if abs(x) > 1e-3 else 0))
    row = st.lists(number, min_size=dimension, max_size=dimension).map(
        lambda values: np.array(values, dtype=np.float32)
    )
    require_oracle(data.draw(st.lists(row, min_size=1, max_size=9)), data.draw(st.none() | row))


def test_the_travel_points_as_the_updates_do_that_made_it() -> None:
    # A model goes down by its updates: from 3 to 1 they added up to 2.
    assert displacement(f32(3, 0), f32(1, 5)).tolist() == [2, -5]
    assert displacement(f32(1, 1), f32(1, 1)).tolist() == [0, 0]


def test_a_travel_that_is_out_of_range_has_no_direction() -> None:
    largest = float(np.finfo(np.float32).max)
    assert displacement(f32(largest, 1), f32(-largest, 0)).tolist() == [0, 0]
    assert displacement(f32(np.inf, 1), f32(np.inf, 0)).tolist() == [0, 0]


def test_models_of_different_length_have_no_travel() -> None:
    with pytest.raises(ValueError, match=r"models of shapes \(1,\) and \(2,\) differ"):
        displacement(f32(1), f32(1, 2))


def test_the_window_of_the_travel_starts_at_the_first_model() -> None:
    assert [window_start(t) for t in (1, 2, 20, 21, 22, 50)] == [1, 1, 1, 1, 2, 30]


def test_members_of_one_update_have_no_opinion_of_their_own() -> None:
    # Five members the same, one honest; twelve honest updates share a cosine of .8.
    eye = np.eye(13, dtype=np.float32)
    honest = [2 * eye[0] + eye[place] for place in range(1, 13)]
    found = distances([*[-eye[0]] * 5, *honest])
    assert found[5:] == pytest.approx([0.4] * 12, rel=1e-6)
    assert found[:5] == pytest.approx([2 + 4 / 5**0.5] * 5, rel=1e-6)
