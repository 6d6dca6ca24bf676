"""Up to which distance strategy III accepts."""

from __future__ import annotations

from statistics import mean as statistics_mean
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import float_bits
from ledger.protocol.rules.registry import SCORINGS, THRESHOLDS
from ledger.protocol.rules.threshold import RIGHT_ANGLE, SPREAD_FACTOR, right_angle, spread

moderate = st.integers(0, 10**6).map(float)
MEDIAN, MEAN = SCORINGS["median"], SCORINGS["mean"]


def test_the_spread_is_the_median_and_three_deviations() -> None:
    # Medians of the rows: 1, 2, 3, 10. Their median 2.5; deviations 1.5, 0.5, 0.5, 7.5: median 1.
    rows = [np.array(row) for row in ([1.0], [1.0, 2.0, 9.0], [2.0, 4.0], [10.0])]
    assert spread(rows, MEDIAN) == 2.5 + 3 * 1.0


def test_the_spread_compares_means_with_means() -> None:
    # Means of the rows: 1, 4, 3, 10. Their median 3.5; deviations 2.5, 0.5, 0.5, 6.5: median 1.5.
    rows = [np.array(row) for row in ([1.0], [1.0, 2.0, 9.0], [2.0, 4.0], [10.0])]
    assert spread(rows, MEAN) == 3.5 + 3 * 1.5


@pytest.mark.parametrize("scoring", ["mean", "median"])
@given(rows=st.lists(st.lists(moderate, min_size=1, max_size=5), min_size=1, max_size=7))
def test_the_spread_follows_the_definition(scoring: str, rows: list[list[float]]) -> None:
    found = spread([np.array(row) for row in rows], SCORINGS[scoring])
    combine = {"mean": statistics_mean, "median": median}[scoring]
    values = [combine(row) for row in rows]
    middle = median(values)
    expected = middle + SPREAD_FACTOR * median(abs(value - middle) for value in values)
    # The standard library's mean is rounded once, ours after every sum.
    assert found == pytest.approx(expected, rel=1e-12)
    assert found >= middle


def test_a_right_angle_is_just_below_two_whatever_was_published() -> None:
    assert right_angle([], MEAN) == right_angle([np.array([9.0])], MEDIAN) == RIGHT_ANGLE
    assert float_bits(RIGHT_ANGLE) == 0x3FFF_FFFF_FFFF_FFFF
    assert RIGHT_ANGLE < 2.0


def test_only_the_right_angle_needs_a_distance_of_its_own() -> None:
    assert {name: rule.distance for name, rule in THRESHOLDS.items()} == {
        "none": None,
        "spread": None,
        "direction": "direction",
    }
    assert [name for name, rule in THRESHOLDS.items() if not rule.is_certified] == ["none"]
