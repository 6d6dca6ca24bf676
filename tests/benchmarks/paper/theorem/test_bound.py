"""The bound of Theorem 1 as it is printed, with numbers that a pencil can check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.theorem.bound import Constants, bound_after

NONE = Constants(
    smoothness=1.0,
    mu=1.0,
    variance=0.0,
    gradient_squared=0.0,
    kappa_squared=0.0,
    heterogeneity=0.0,
    least_gap=1.0,
    largest_gap=1.0,
    start_squared=0.0,
    local_steps=1,
)
"""gamma = 4, so that T = 4 makes the factor in front 1/8; all terms are 0."""


def total(constants: Constants, steps: int = 4) -> float:
    found = bound_after(steps, constants)
    assert found is not None
    return found.total


@pytest.mark.parametrize(
    ("constants", "expected"),
    [
        (NONE, 0.0),
        # 4 L 32 tau^2 G^2 / (3 mu^2 phi) = 128 / 3, an eighth of it 16 / 3.
        (replace(NONE, gradient_squared=1.0), 16 / 3),
        (replace(NONE, gradient_squared=1.0, local_steps=5), 25 * 16 / 3),
        (replace(NONE, gradient_squared=1.0, least_gap=0.5, largest_gap=0.5), 32 / 3),
        # 4 L sigma^2 / 3, an eighth of it 1 / 6.
        (replace(NONE, variance=1.0), 1 / 6),
        # 24 L^2 kappa^2 / 3, an eighth of it 1.
        (replace(NONE, kappa_squared=1.0), 1.0),
        # 8 L^2 Gamma / mu^2, an eighth of it 1; phi_max = phi_min leaves nothing behind.
        (replace(NONE, heterogeneity=1.0), 1.0),
        # And 8 L Gamma / (3 mu) (2 / 1 - 1), whatever T is.
        (replace(NONE, heterogeneity=1.0, largest_gap=2.0), 1.0 + 8 / 3),
        # L gamma / 2 = 2, an eighth of it 1 / 4.
        (replace(NONE, start_squared=1.0), 0.25),
    ],
)
def test_each_term_by_itself(constants: Constants, expected: float) -> None:
    assert total(constants) == pytest.approx(expected)


@pytest.mark.parametrize("least_gap", [0.0, -0.5])
def test_without_a_gap_above_0_there_is_no_bound(least_gap: float) -> None:
    assert bound_after(4, replace(NONE, least_gap=least_gap)) is None


@given(
    st.integers(1, 10_000),
    st.floats(0.1, 1.0),
    st.floats(1.0, 3.0),
    st.floats(0.0, 10.0),
)
def test_it_falls_with_the_steps_to_what_lasts(
    steps: int, least: float, largest: float, heterogeneity: float
) -> None:
    constants = replace(
        NONE,
        least_gap=least,
        largest_gap=largest,
        heterogeneity=heterogeneity,
        gradient_squared=1.0,
        start_squared=1.0,
    )
    found = bound_after(steps, constants)
    assert found is not None
    assert total(constants, steps + 1) < found.total
    assert found.total > found.lasting >= 0
    # A larger phi_min is a smaller bound: what the paper concludes from it.
    assert total(replace(constants, least_gap=least / 2), steps) > found.total
