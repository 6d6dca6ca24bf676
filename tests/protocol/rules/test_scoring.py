"""How distances to the members become one: by pencil, then by property."""

from __future__ import annotations

from fractions import Fraction
from statistics import median as statistics_median
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.ranking import score
from ledger.protocol.rules.registry import SCORINGS
from ledger.protocol.rules.scoring import mean, median

if TYPE_CHECKING:
    from ledger.protocol.rules.scoring import ScoringRule

moderate = st.floats(0, 1e6).map(abs)
each_rule = pytest.mark.parametrize("rule", SCORINGS.values(), ids=SCORINGS)


def table(rows: int | None = None) -> st.SearchStrategy[list[list[float]]]:
    """Return tables of distances with equally long rows."""
    return st.integers(1, 6).flatmap(
        lambda width: st.lists(
            st.lists(moderate, min_size=width, max_size=width),
            min_size=rows or 1,
            max_size=rows or 7,
        )
    )


def test_the_papers_ranking_is_that_of_mean_distances() -> None:
    # Members give the distances 1, 2 and 3: P = C / sum of D = 3 / 6.
    combined = mean(np.array([[1.0], [2.0], [3.0]]))
    assert combined.tolist() == [2.0]
    assert score(combined[0]) == 3 / (1 + 2 + 3)


@pytest.mark.parametrize(
    ("column", "middle"), [([5.0], 5.0), ([9.0, 1.0], 5.0), ([9.0, 1.0, 2.0], 2.0)]
)
def test_the_median_is_the_middle_or_half_of_two(column: list[float], middle: float) -> None:
    assert median(np.array([[value] for value in column])).tolist() == [middle]


def test_one_lying_member_moves_the_mean_but_not_the_median() -> None:
    honest, lie = [1.0, 4.0], [1e9, 0.0]
    rows = np.array([honest, honest, lie])
    assert median(rows).tolist() == honest
    assert mean(rows)[0] > mean(rows)[1]


@each_rule
def test_without_a_member_there_is_no_score(rule: ScoringRule) -> None:
    with pytest.raises(ValueError, match="no member's distances"):
        rule.combine(np.empty((0, 3)))
    assert rule.combine(np.ones((1, 3))).tolist() == [1.0, 1.0, 1.0]


@given(rows=table())
def test_the_mean_is_summed_member_by_member(rows: list[list[float]]) -> None:
    expected = []
    for column in zip(*rows, strict=True):
        total = 0.0
        for value in column:
            total += value
        expected.append(total / len(rows))
    assert mean(np.array(rows)).tolist() == expected


@given(rows=table())
def test_the_median_is_that_of_the_standard_library(rows: list[list[float]]) -> None:
    expected = [statistics_median(column) for column in zip(*rows, strict=True)]
    assert median(np.array(rows)).tolist() == expected


@given(rows=table(), data=st.data())
def test_the_median_does_not_depend_on_the_order_of_members(
    rows: list[list[float]], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(rows))
    assert median(np.array(rows)).tobytes() == median(np.array(other)).tobytes()


@given(honest=table(rows=3), lies=table(rows=2))
def test_two_liars_among_five_cannot_move_the_median_beyond_honest(
    honest: list[list[float]], lies: list[list[float]]
) -> None:
    width = min(len(honest[0]), len(lies[0]))
    rows = np.array([row[:width] for row in honest + lies])
    found = median(rows)
    assert (rows[:3].min(axis=0) <= found).all()
    assert (found <= rows[:3].max(axis=0)).all()


@given(distances=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_the_score_is_the_papers_formula(distances: list[float]) -> None:
    found = score(mean(np.array([[d] for d in distances]))[0])
    paper = Fraction(len(distances)) / sum(1 / (1 / Fraction(d)) for d in distances)
    # A handful of roundings, each at most 2^-53.
    assert found == pytest.approx(float(paper), rel=1e-14)
