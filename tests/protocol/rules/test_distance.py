"""Distances between updates: the paper's by pencil, then the matrix of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.rules.distance import (
    DIRECTION,
    SQUARED,
    DistanceRule,
    plain_distances,
    squared_distance,
)
from ledger.protocol.types import ClientId
from tests.protocol.support import f32
from tests.support.keys import ids

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

each_rule = pytest.mark.parametrize("rule", [SQUARED, DIRECTION], ids=lambda rule: rule.name)
whole = st.integers(-1000, 1000)


@st.composite
def rounds(draw: st.DrawFn) -> dict[ClientId, NDArray[np.float32]]:
    """Return updates of three whole numbers each."""
    rows = draw(st.lists(st.tuples(whole, whole, whole), min_size=1, max_size=6))
    return {ClientId(index): f32(*row) for index, row in enumerate(rows)}


def test_differences_are_taken_in_float64() -> None:
    # In float32, 2^24 + 1 does not exist: the difference to -1 would be 2^24.
    assert squared_distance(f32(2.0**24), f32(-1)) == float((2**24 + 1) ** 2)


@each_rule
def test_updates_of_different_length_have_no_matrix(rule: DistanceRule) -> None:
    for other in (f32(1), f32(1, 2, 3, 4)):
        with pytest.raises(ValueError, match="differ in length"):
            plain_distances(rule, None, {ClientId(0): f32(1, 2, 3), ClientId(1): other}, ids(0))


@each_rule
def test_a_round_without_members_or_updates_has_an_empty_matrix(rule: DistanceRule) -> None:
    assert plain_distances(rule, None, {}, ()).shape == (0, 0)
    assert plain_distances(rule, None, {ClientId(3): f32(1, 1, 1)}, ()).shape == (0, 1)


@given(updates=rounds())
def test_the_matrix_has_member_rows_and_ascending_columns(
    updates: dict[ClientId, NDArray[np.float32]],
) -> None:
    members = sorted(updates, reverse=True)[:3]
    shuffled = dict(reversed(updates.items()))
    found = plain_distances(SQUARED, None, shuffled, members)
    assert found.shape == (len(members), len(updates))
    for row, member in zip(found, members, strict=True):
        for value, client in zip(row, sorted(updates), strict=True):
            pairs = zip(updates[client].tolist(), updates[member].tolist(), strict=True)
            assert value == sum(int(a - b) ** 2 for a, b in pairs)
