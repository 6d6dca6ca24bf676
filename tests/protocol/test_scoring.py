"""Scores (Eq. computeScore) and strategy III's threshold, by pencil and by property."""

from __future__ import annotations

from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.scoring import (
    SPREAD_FACTOR,
    committee_distances,
    score,
    spread_threshold,
    squared_distance,
)
from ledger.protocol.types import Scoring
from tests.protocol.support import f32

moderate = st.floats(0, 1e6).map(abs)


def table(rows: int | None = None) -> st.SearchStrategy[list[list[float]]]:
    """Return tables of distances with equally long rows."""
    return st.integers(1, 6).flatmap(
        lambda width: st.lists(
            st.lists(moderate, min_size=width, max_size=width),
            min_size=rows or 1,
            max_size=rows or 7,
        )
    )


def test_the_distance_is_the_square_of_the_euclidean() -> None:
    assert squared_distance(f32(1, 2, 3), f32(1, 0, 6)) == 0 + 4 + 9


def test_updates_of_different_length_have_no_distance() -> None:
    # An update of length 1 would otherwise be broadcast without a word.
    for other in (f32(1), f32(1, 2, 3)):
        with pytest.raises(ValueError, match="have no distance"):
            squared_distance(f32(1, 2), other)


def test_differences_are_taken_in_float64() -> None:
    # In float32, 2^24 + 1 does not exist: the difference to -1 would be 2^24.
    assert squared_distance(f32(2.0**24), f32(-1)) == float((2**24 + 1) ** 2)


def test_the_paper_ranks_by_the_harmonic_mean_of_scores_which_is_the_mean_distance() -> None:
    # Members give the distances 1, 2 and 3: P = C / sum of D = 3 / 6.
    combined = committee_distances(np.array([[1.0], [2.0], [3.0]]), Scoring.MEAN)
    assert combined.tolist() == [2.0]
    assert score(combined[0]) == 3 / (1 + 2 + 3)


def test_no_distance_is_the_best_score() -> None:
    assert score(0.0) == float("inf")


@pytest.mark.parametrize(
    ("column", "middle"), [([5.0], 5.0), ([9.0, 1.0], 5.0), ([9.0, 1.0, 2.0], 2.0)]
)
def test_the_median_is_the_middle_or_half_the_sum_of_two(
    column: list[float], middle: float
) -> None:
    found = committee_distances(np.array([[value] for value in column]), Scoring.MEDIAN)
    assert found.tolist() == [middle]


def test_one_lying_member_moves_the_mean_but_not_the_median() -> None:
    honest, lie = [1.0, 4.0], [1e9, 0.0]
    rows = np.array([honest, honest, lie])
    assert committee_distances(rows, Scoring.MEDIAN).tolist() == honest
    mean = committee_distances(rows, Scoring.MEAN)
    assert mean[0] > mean[1]


@pytest.mark.parametrize("scoring", Scoring)
def test_without_a_member_there_is_no_score(scoring: Scoring) -> None:
    with pytest.raises(ValueError, match="no member's distances"):
        committee_distances(np.empty((0, 3)), scoring)


@given(rows=table())
def test_the_mean_is_summed_member_by_member(rows: list[list[float]]) -> None:
    expected = []
    for column in zip(*rows, strict=True):
        total = 0.0
        for value in column:
            total += value
        expected.append(total / len(rows))
    assert committee_distances(np.array(rows), Scoring.MEAN).tolist() == expected


@given(rows=table())
def test_the_median_is_that_of_the_standard_library(rows: list[list[float]]) -> None:
    expected = [median(column) for column in zip(*rows, strict=True)]
    assert committee_distances(np.array(rows), Scoring.MEDIAN).tolist() == expected


@given(rows=table(), data=st.data())
def test_the_median_does_not_depend_on_the_order_of_members(
    rows: list[list[float]], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(rows))
    found = committee_distances(np.array(rows), Scoring.MEDIAN)
    assert found.tobytes() == committee_distances(np.array(other), Scoring.MEDIAN).tobytes()


@given(honest=table(rows=3), lies=table(rows=2))
def test_two_liars_among_five_cannot_move_the_median_beyond_the_honest(
    honest: list[list[float]], lies: list[list[float]]
) -> None:
    width = min(len(honest[0]), len(lies[0]))
    rows = np.array([row[:width] for row in honest + lies])
    found = committee_distances(rows, Scoring.MEDIAN)
    assert (rows[:3].min(axis=0) <= found).all()
    assert (found <= rows[:3].max(axis=0)).all()


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=8), data=st.data())
def test_distances_of_whole_numbers_are_exact_and_symmetric(
    values: list[int], data: st.DataObject
) -> None:
    others = data.draw(
        st.lists(st.integers(-1000, 1000), min_size=len(values), max_size=len(values))
    )
    one, other = f32(*values), f32(*others)
    expected = sum((a - b) ** 2 for a, b in zip(values, others, strict=True))
    assert squared_distance(one, other) == squared_distance(other, one) == expected


def test_the_threshold_is_the_median_and_three_deviations() -> None:
    # Medians of the rows: 1, 2, 3, 10. Their median 2.5; deviations 1.5, 0.5, 0.5, 7.5: median 1.
    rows = [np.array(row) for row in ([1.0], [1.0, 2.0, 9.0], [2.0, 4.0], [10.0])]
    assert spread_threshold(rows) == 2.5 + 3 * 1.0


def test_a_member_without_another_to_compare_with_says_nothing_about_the_spread() -> None:
    assert spread_threshold([np.array([]), np.array([4.0])]) == 4.0
    assert spread_threshold([np.array([])]) == 0.0
    assert spread_threshold([]) == 0.0


@given(rows=st.lists(st.lists(moderate, min_size=1, max_size=5), min_size=1, max_size=7))
def test_the_threshold_follows_the_definition(rows: list[list[float]]) -> None:
    found = spread_threshold([np.array(row) for row in rows])
    medians = [median(row) for row in rows]
    middle = median(medians)
    deviation = median(abs(value - middle) for value in medians)
    assert found == middle + SPREAD_FACTOR * deviation
    assert found >= middle


@given(distances=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_the_score_is_the_papers_formula(distances: list[float]) -> None:
    found = score(committee_distances(np.array([[d] for d in distances]), Scoring.MEAN)[0])
    paper = Fraction(len(distances)) / sum(1 / (1 / Fraction(d)) for d in distances)
    # A handful of roundings, each at most 2^-53.
    assert found == pytest.approx(float(paper), rel=1e-14)
