"""What a few repetitions say, with numbers that a pencil can check."""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.experiments.statistics import Estimate, average_ranks, mean_and_error, paired, spearman

NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12)


def test_a_mean_has_the_error_of_the_sample_deviation() -> None:
    # Mean 4, squares 4 + 0 + 4 = 8, s² = 8 / 2 = 4, error 2 / sqrt(3).
    found = mean_and_error([2.0, 4.0, 6.0])
    assert (found.mean, found.count) == (4.0, 3)
    assert found.error == pytest.approx(2 / sqrt(3))


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean_and_error([])


@pytest.mark.parametrize("value", [nan, inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        mean_and_error([1.0, value])
    with pytest.raises(ValueError, match="not finite"):
        spearman([1.0, value], [1.0, 2.0])


def test_a_difference_is_taken_pair_by_pair() -> None:
    # Differences 1, 1, 1 have no spread, though both sides have.
    assert paired([2.0, 11.0, 101.0], [1.0, 10.0, 100.0]) == Estimate(1.0, 0.0, 3)


def test_what_has_no_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values beside 1"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="2 values beside 1"):
        spearman([1.0, 2.0], [1.0])


def test_the_rank_correlation_of_five_clients() -> None:
    # Rank differences 0, 1, 1, 1, 1: 1 - 6 * 4 / (5 * 24) = 0.8.
    assert spearman([1, 2, 3, 4, 5], [10, 30, 20, 50, 40]) == pytest.approx(0.8)


def test_without_an_order_there_is_no_correlation() -> None:
    assert spearman([1, 2, 3], [4, 4, 4]) is None
    assert spearman([1], [1]) is None
    assert spearman([], []) is None


@given(NUMBERS)
def test_only_the_order_counts(values: list[float]) -> None:
    others = values[::-1]
    found = spearman(values, others)
    assert found == spearman([value**3 for value in values], others)
    assert found is None or -1 <= found <= 1
    assert spearman(others, values) == found
    if found is not None:
        assert spearman(values, [-other for other in others]) == pytest.approx(-found)
        assert spearman(values, values) == pytest.approx(1.0)


@given(NUMBERS)
def test_ranks_are_those_of_counting(values: list[float]) -> None:
    array = np.array(values)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    assert average_ranks(values) == (below + (equal + 1) / 2).tolist()
