"""What members hold updates against: the travel, and how much of it a reference takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.distances.fast import fast_distances
from ledger.protocol.errors import ParametersError
from ledger.protocol.rules.direction import DirectionMeasure
from ledger.protocol.rules.distance import (
    DistanceContext,
    Distances,
    ServerDirection,
    plain_distances,
)
from ledger.protocol.rules.reference import DirectionWeight, displacement
from ledger.protocol.rules.registry import DISTANCES, REFERENCES
from ledger.protocol.types import ClientId
from tests.protocol.support import PENCIL, f32
from tests.support.keys import ids

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "travel-v1.json").read_text("utf-8"))
TRAVEL = DirectionWeight(window=20, slope=150.0, cap=3.0)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


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


@given(before=st.lists(numbers, min_size=3, max_size=3), now=st.lists(numbers, min_size=3))
def test_each_number_of_a_travel_is_one_subtraction_in_float32(
    before: list[float], now: list[float]
) -> None:
    with np.errstate(over="ignore"):
        expected = [np.float32(a) - np.float32(b) for a, b in zip(before, now[:3], strict=True)]
    found = displacement(f32(*before), f32(*now[:3]))
    assert found.dtype == np.float32
    assert found.tolist() == (expected if np.isfinite(expected).all() else [0, 0, 0])


def test_a_reference_weighs_displacement_by_the_members_agreement() -> None:
    assert TRAVEL.multiple([0.01]) == 1.5
    assert TRAVEL.multiple([0.02, 0.004, 0.008]) == pytest.approx(1.2)
    assert TRAVEL.multiple([0.25, 0.002, 0.9, 0.006]) == 3.0
    assert TRAVEL.multiple([-0.2, 0.5, -0.1]) == 0.0
    assert TRAVEL.multiple([]) == 0.0
    assert TRAVEL.multiple([float("nan")]) == 0.0


def test_the_displacement_window_starts_at_the_first_model() -> None:
    assert [TRAVEL.window_start(t) for t in (1, 2, 20, 21, 22, 50)] == [1, 1, 1, 1, 2, 30]


def test_a_pull_is_of_one_vector_in_memory() -> None:
    vector = f32(1, 2)
    server_direction = ServerDirection(vector, ids(1, 2), TRAVEL)
    again, other = (
        ServerDirection(vector, ids(1, 2), TRAVEL),
        ServerDirection(vector.copy(), ids(1, 2), TRAVEL),
    )
    assert server_direction == again
    assert hash(server_direction) == hash(again)
    assert server_direction != other
    assert server_direction != ServerDirection(vector, ids(1), TRAVEL)
    assert server_direction != vector.tolist()
    assert DistanceContext((), server_direction) == DistanceContext((), again)
    assert DistanceContext((), server_direction) != DistanceContext(())


def test_all_but_own_use_displacement_and_need_direction() -> None:
    assert {name: rule.direction_weight for name, rule in REFERENCES.items()} == {
        "own": None,
        "travel": TRAVEL,
        "travel-sum": TRAVEL,
        "crowd": TRAVEL,
        "peers": DirectionWeight(window=20, slope=5.0, cap=1.0),
    }
    along = replace(PENCIL, distance="direction", reference="travel")
    assert along.direction_weight == TRAVEL
    assert PENCIL.direction_weight is None
    with pytest.raises(
        ParametersError, match=r"reference = travel goes with distance = direction, not with l2"
    ):
        replace(PENCIL, distance="l2", reference="travel")
    with pytest.raises(ParametersError, match="reference = north is none of own, travel"):
        replace(PENCIL, distance="direction", reference="north")


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["name"]))
@pytest.mark.parametrize("compute", [plain_distances, fast_distances()], ids=["plain", "fast"])
def test_distances_along_a_travel_are_those_of_decimals(
    case: dict[str, Any], compute: Distances
) -> None:
    vector = displacement(f32(*case["before"]), f32(*case["now"]))
    updates = {ClientId(i): f32(*update) for i, update in enumerate(case["updates"])}
    members = ids(*range(case["members"]))
    context = DistanceContext((), ServerDirection(vector, members, TRAVEL))
    measure = DirectionMeasure(updates, context.server_direction)
    assert measure.multiple == pytest.approx(float.fromhex(case["multiple"]), rel=1e-9, abs=1e-11)
    found = compute(DISTANCES["direction"], context, updates, members)
    expected = np.array([[float.fromhex(one) for one in row] for row in case["expected"]])
    for client, update in updates.items():
        for member in members:
            true = float(expected[member, client])
            assert abs(found[member, client] - true) <= 0.01 * measure.tolerance(update, true)
