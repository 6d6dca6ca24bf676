"""Distances between updates: each rule by pencil, then what holds for all of them."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.rules.direction import DirectionMeasure, norm_of
from ledger.protocol.rules.distance import (
    DistanceContext,
    DistanceRule,
    ServerDirection,
    difference,
    l2_distance,
    plain_distances,
    squared_distance,
)
from ledger.protocol.rules.reference import DirectionWeight
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.types import ClientId
from tests.protocol.support import f32
from tests.support.keys import ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT = DistanceContext((("weight", (2, 1)), ("bias", (1,))))
each_rule = pytest.mark.parametrize("rule", DISTANCES.values(), ids=DISTANCES)
whole = st.integers(-1000, 1000)


def between(name: str, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return a distance in a round of just these two."""
    return DISTANCES[name].among(numbered(update, reference), CONTEXT).between(update, reference)


def numbered(*updates: NDArray[np.float32]) -> dict[ClientId, NDArray[np.float32]]:
    """Return updates as those of clients 0, 1, 2, ..."""
    return {ClientId(index): update for index, update in enumerate(updates)}


@st.composite
def rounds(draw: st.DrawFn) -> dict[ClientId, NDArray[np.float32]]:
    """Return updates of three whole numbers each."""
    rows = draw(st.lists(st.tuples(whole, whole, whole), min_size=1, max_size=6))
    return {ClientId(index): f32(*row) for index, row in enumerate(rows)}


def test_the_papers_distance_is_the_square_of_the_euclidean() -> None:
    assert squared_distance(f32(1, 2, 3), f32(1, 0, 6)) == 0 + 4 + 9


def test_l2_is_the_euclidean() -> None:
    assert l2_distance(f32(1, 2), f32(4, 6)) == 5.0


def test_per_tensor_adds_the_roots_of_the_tensors() -> None:
    # The weight's part is (3, 4), of length 5; the bias's is 7.
    assert between("per_tensor", f32(3, 4, 7), f32(0, 0, 0)) == 5 + 7


def test_per_tensor_follows_the_layout_and_scalars_have_one_number() -> None:
    context = DistanceContext((("scale", ()), ("rest", (2,))))
    measure = DISTANCES["per_tensor"].among({}, context)
    assert measure.between(f32(7, 3, 4), f32(0, 0, 0)) == 7 + 5


def test_direction_is_two_at_right_angles_and_four_opposite() -> None:
    assert between("direction", f32(3, 0, 0), f32(0, 5, 0)) == 2.0
    assert between("direction", f32(3, 0, 0), f32(-5, 0, 0)) == 4.0
    assert between("direction", f32(3, 0, 0), f32(5, 0, 0)) == 0.0


def test_direction_gives_zeros_four_whichever_of_the_two_they_are() -> None:
    # 4 even for a reference of zeros and an update far over the median: no factor on top.
    measure = DirectionMeasure(numbered(f32(0), f32(1), f32(1)))
    assert measure.between(f32(0), f32(1)) == 4.0
    assert measure.between(f32(100), f32(0)) == 4.0
    assert measure.between(f32(0), f32(0)) == 4.0


def test_direction_lengthens_what_is_over_twice_the_median_length() -> None:
    measure = DirectionMeasure(numbered(f32(1, 0), f32(0, 2), f32(6, 0)))
    # The median length is 2: up to 4 nothing happens, 6 is 1.5 times that, squared 2.25.
    assert measure.factor(f32(4, 0)) == 1.0
    assert measure.factor(f32(6, 0)) == 2.25
    assert measure.between(f32(6, 0), f32(0, 2)) == 2.0 * 2.25
    # The reference's length never counts.
    assert measure.between(f32(0, 2), f32(6, 0)) == 2.0


def test_the_median_length_is_over_all_usable_updates() -> None:
    measure = DirectionMeasure(numbered(f32(1), f32(3)))
    assert measure.factor(f32(8)) == (8 / (2 * 2)) ** 2


def test_where_the_median_length_is_zero_no_length_counts() -> None:
    measure = DirectionMeasure(numbered(f32(0), f32(0), f32(1e30)))
    assert measure.factor(f32(1e30)) == 1.0
    assert measure.between(f32(1e30), f32(1.0)) == 0.0
    assert DirectionMeasure(numbered()).factor(f32(5)) == 1.0


def drawn(
    vector: NDArray[np.float32], *updates: NDArray[np.float32], members: int = 2, slope: float = 1.0
) -> DirectionMeasure:
    """Return the measure of a round whose first clients are members, who follow a travel."""
    server_direction = ServerDirection(
        vector, ids(*range(members)), DirectionWeight(20, slope, 3.0)
    )
    return DirectionMeasure(numbered(*updates), server_direction)


def test_with_displacement_a_distance_is_a_mean_weighted_by_agreement() -> None:
    # The members' cosines with (0, 2) are 1 and .6: g = .8, and b = 5 g = 4, but at most 3.
    up, slanted, right, down = f32(0, 5), f32(4, 3), f32(1, 0), f32(0, -2)
    measure = drawn(f32(0, 2), up, slanted, right, down, slope=5.0)
    assert measure.multiple == 3.0
    assert drawn(f32(0, 2), up, slanted).multiple == pytest.approx(0.8, rel=1e-15)
    # (|right - up|² + 3 |right - (0, 1)|²) / 4, and so on.
    assert measure.between(right, up) == (2 + 3 * 2) / 4
    assert measure.between(down, right) == (2 + 3 * 4) / 4
    assert measure.between(up, down) == (4 + 3 * 0) / 4
    assert measure.between(up.copy(), right) == (2 + 3 * 0) / 4


def test_a_travel_that_the_members_go_against_draws_nobody() -> None:
    one, other, third = f32(0, 1), f32(1, 0), f32(-1, 2)
    for vector in (f32(0, -1), f32(-1, 0), f32(0, 0)):
        measure = drawn(vector, one, other, third, slope=1e6)
        assert measure.multiple == 0.0
        assert measure.between(third, one) == DirectionMeasure(numbered(one, other, third)).between(
            third, one
        )


def test_members_with_zeros_or_no_update_do_not_weigh_displacement() -> None:
    with_zeros = drawn(f32(1, 0), f32(0, 0), f32(3, 4), f32(9, 0), members=2)
    assert with_zeros.multiple == pytest.approx(0.6, rel=1e-15)
    server_direction = ServerDirection(f32(1, 0), ids(1, 7), DirectionWeight(20, 1.0, 3.0))
    updates = numbered(f32(1, 0), f32(3, 4))
    assert DirectionMeasure(updates, server_direction).multiple == pytest.approx(0.6, rel=1e-15)
    assert drawn(f32(1, 0), f32(0, 0), f32(0, 0), f32(9, 0)).multiple == 0.0


def test_with_displacement_zeros_stay_opposite_and_lengths_count() -> None:
    measure = drawn(f32(1, 0), f32(2, 0), f32(2, 0), f32(0, 6), f32(0, 0))
    assert measure.between(f32(0, 0), f32(2, 0)) == 4.0
    assert measure.between(f32(2, 0), f32(0, 0)) == 4.0
    assert measure.between(f32(0, 6), f32(2, 0)) == 2.0 * 2.25


def test_a_travel_is_as_long_as_the_updates() -> None:
    with pytest.raises(ValueError, match=r"update \(2,\) and displacement \(1,\) differ"):
        drawn(f32(1), f32(2, 0), f32(1, 1)).between(f32(2, 0), f32(1, 1))


@given(updates=rounds(), vector=st.tuples(whole, whole, whole), slope=st.floats(0, 200))
def test_below_two_means_a_positive_cosine_with_displacement_too(
    updates: dict[ClientId, NDArray[np.float32]], vector: tuple[int, int, int], slope: float
) -> None:
    measure = DirectionMeasure(
        updates, ServerDirection(f32(*vector), ids(0, 1, 2), DirectionWeight(20, slope, 3.0))
    )
    heading = np.array(vector) / (norm_of(f32(*vector)) or 1.0)
    for update in updates.values():
        for own in updates.values():
            if not (update.any() and own.any()):
                continue
            reference = own / norm_of(own) + measure.multiple * heading
            product = float(np.dot(update / norm_of(update), reference))
            found = measure.between(update, own) / measure.factor(update)
            assert 0 <= found <= 4 * (1 + 1e-12)
            if abs(product) > 1e-6:
                assert (found < 2) == (product > 0)


def test_only_direction_leaves_out_members_whose_update_is_zero() -> None:
    for name, rule in DISTANCES.items():
        measure = rule.among(numbered(f32(0, 0, 0), f32(0, 0, 1)), CONTEXT)
        assert measure.can_score(f32(0, 0, 1))
        assert measure.can_score(f32(0, 0, 0)) == (name != "direction")


def test_only_direction_depends_on_the_other_updates() -> None:
    assert [name for name, rule in DISTANCES.items() if rule.needs_all] == ["direction"]


def test_margins_are_relative_and_of_direction_also_absolute() -> None:
    for name in ("squared", "l2", "per_tensor"):
        measure = DISTANCES[name].among(numbered(f32(1, 1, 1)), CONTEXT)
        assert measure.tolerance(f32(1, 1, 1), 5.0) == 5e-9
        assert measure.tolerance(f32(1, 1, 1), 0.0) == 0.0
    long = DirectionMeasure(numbered(f32(1), f32(1), f32(4)))
    assert long.tolerance(f32(4), 5.0) == 1e-9 * 5.0 + 1e-12 * 4.0
    along = drawn(f32(1), f32(1), f32(1), f32(4))
    assert along.tolerance(f32(4), 5.0) == 1e-9 * 5.0 + 1e-10 * 4.0


def test_no_large_first_number_absorbs_the_others() -> None:
    # The squares of the others are half an ulp of the first one's square, or less.
    update = np.full(1 << 20, 2.0**-27, dtype=np.float32)
    update[0], reference = 1, np.zeros_like(update)
    reference[0], length = -1, sqrt(1 + (len(update) - 1) * 2.0**-54)
    assert norm_of(update) == pytest.approx(length, rel=3e-13, abs=0)
    found = between("direction", update, reference)
    assert found == pytest.approx(2 + 2 / length, rel=3e-13, abs=0)


def test_differences_are_taken_in_float64() -> None:
    # In float32, 2^24 + 1 does not exist: the difference to -1 would be 2^24.
    assert squared_distance(f32(2.0**24), f32(-1)) == float((2**24 + 1) ** 2)


@each_rule
def test_updates_of_different_length_have_no_distance(rule: DistanceRule) -> None:
    # An update of length 1 would otherwise be broadcast without a word.
    measure = rule.among(numbered(f32(1, 2, 3)), CONTEXT)
    for other in (f32(1), f32(1, 2, 3, 4)):
        with pytest.raises(ValueError, match="differ"):
            measure.between(f32(1, 2, 3), other)
        with pytest.raises(ValueError, match="updates differ in length"):
            plain_distances(rule, CONTEXT, {ClientId(0): f32(1, 2, 3), ClientId(1): other}, ids(0))
    with pytest.raises(ValueError, match=r"of shapes \(1,\) and \(2,\) differ"):
        difference(f32(1), f32(1, 2))


@each_rule
def test_a_round_without_members_or_updates_has_an_empty_matrix(rule: DistanceRule) -> None:
    assert plain_distances(rule, CONTEXT, {}, ()).shape == (0, 0)
    assert plain_distances(rule, CONTEXT, {ClientId(3): f32(1, 1, 1)}, ()).shape == (0, 1)


@each_rule
@given(updates=rounds())
def test_the_matrix_has_member_rows_and_ascending_columns(
    rule: DistanceRule, updates: dict[ClientId, NDArray[np.float32]]
) -> None:
    members = sorted(updates, reverse=True)[:3]
    shuffled = dict(reversed(updates.items()))
    found = plain_distances(rule, CONTEXT, shuffled, members)
    measure = rule.among(updates, CONTEXT)
    assert found.shape == (len(members), len(updates))
    for row, member in zip(found, members, strict=True):
        for value, client in zip(row, sorted(updates), strict=True):
            assert value == measure.between(updates[client], updates[member])
            assert 0 <= value < float("inf")


@pytest.mark.parametrize("name", ["squared", "l2", "per_tensor"])
@given(updates=rounds())
def test_unbounded_distances_are_symmetric_and_zero_to_oneself(
    name: str, updates: dict[ClientId, NDArray[np.float32]]
) -> None:
    first, last = updates[ClientId(0)], updates[ClientId(len(updates) - 1)]
    assert between(name, first, first) == 0.0
    assert between(name, first, last) == between(name, last, first)


@given(updates=rounds())
def test_the_distances_of_whole_numbers_are_exact(
    updates: dict[ClientId, NDArray[np.float32]],
) -> None:
    first, last = updates[ClientId(0)], updates[ClientId(len(updates) - 1)]
    squares = [int(a - b) ** 2 for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    assert between("squared", first, last) == sum(squares)
    assert between("l2", first, last) == sqrt(sum(squares))
    ends = prod(CONTEXT.layout[0][1])
    assert between("per_tensor", first, last) == sqrt(sum(squares[:ends])) + sqrt(squares[ends])


@given(updates=rounds())
def test_direction_is_at_most_four_times_the_factor(
    updates: dict[ClientId, NDArray[np.float32]],
) -> None:
    measure = DirectionMeasure(updates)
    for update in updates.values():
        for reference in updates.values():
            assert measure.between(update, reference) <= 4 * measure.factor(update) * (1 + 1e-12)


@given(updates=rounds(), exponent=st.integers(-8, 1))
def test_direction_is_blind_to_lengths_up_to_twice_the_median(
    updates: dict[ClientId, NDArray[np.float32]], exponent: int
) -> None:
    # A power of two is exact: the same bits, not only the same direction.
    first, last = updates[ClientId(0)], updates[ClientId(len(updates) - 1)]
    scaled = np.ldexp(first, exponent).astype(np.float32)
    measure = DirectionMeasure(numbered(first))
    assert measure.between(scaled, last) == measure.between(first, last)
