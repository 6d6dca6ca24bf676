"""F*, F_k*, Gamma, L and the committee gap, on clients that a pencil can follow."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.theorem.objective import Objective
from benchmarks.paper.theorem.optimum import GRADIENT_NORM, minimum
from benchmarks.paper.theorem.problem import problem_of
from ledger.protocol.errors import ConfigurationError
from tests.benchmarks.paper.theorem.pencil import MU, ONE_SAMPLE, OPPOSED, divided, one_sample

GAMMA = log(2) - ONE_SAMPLE
ZERO = np.zeros((2, 2))


def test_the_minimum_of_one_sample() -> None:
    found = minimum(one_sample(0))
    assert found.value == pytest.approx(ONE_SAMPLE, abs=1e-12)
    expected = log(3) / 4 * np.array([[1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    assert np.linalg.norm(one_sample(0).gradient(found.weights)) < GRADIENT_NORM


def test_a_minimum_that_is_out_of_reach_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"mu = 0.9.*: the gradient is .* below 1e-06"):
        minimum(one_sample(0), most_steps=1)


@given(st.integers(0, 30), st.sampled_from([1.0, 0.01]))
def test_nothing_is_lower_than_the_minimum(seed: int, mu: float) -> None:
    rng = np.random.default_rng(seed)
    inputs = np.concatenate([rng.standard_normal((6, 2)), np.ones((6, 1))], axis=1)
    objective = Objective(inputs, rng.integers(3, size=6), 3, mu)
    found = minimum(objective)
    assert np.linalg.norm(objective.gradient(found.weights)) < GRADIENT_NORM
    for scale in (1e-2, 1.0):
        away = scale * rng.standard_normal((3, 3))
        assert objective.value(found.weights + away) > found.value + mu / 4 * np.sum(away * away)


def test_two_clients_of_opposite_opinions() -> None:
    # Together they are best off at W = 0, where F* = ln 2.
    problem = problem_of(OPPOSED, MU)
    assert problem.optimum.value == pytest.approx(log(2))
    assert np.abs(problem.optimum.weights).max() < 1e-6
    assert problem.minima.tolist() == pytest.approx([ONE_SAMPLE, ONE_SAMPLE])
    assert problem.heterogeneity == pytest.approx(GAMMA)
    assert problem.smoothness == pytest.approx(1 + MU)
    assert problem.gamma == pytest.approx(4 * (log(3) + 1))


def test_clients_weigh_as_much_as_their_samples() -> None:
    problem = problem_of(divided(((1.0,), (0,)), ((1.0, 1.0, 1.0), (1, 1, 1))), MU)
    assert problem.shares.tolist() == [0.25, 0.75]
    assert problem.shares_among([1]).tolist() == [1.0]
    assert problem.mean_over([0, 1], np.array([4.0, 8.0])) == pytest.approx(7.0)
    values = problem.values(ZERO)
    assert float(problem.shares @ values) == pytest.approx(problem.together.value(ZERO))


def test_the_best_committee_has_the_smallest_minima() -> None:
    # A client that contradicts itself is least certain; ties go to the smaller number.
    contrary = ((1.0, 1.0), (0, 1))
    problem = problem_of(divided(contrary, ((1.0,), (0,)), ((1.0,), (0,))), MU)
    assert problem.minima[0] == pytest.approx(log(2))
    assert problem.best_committee(2) == (1, 2)
    assert problem.best_committee(1) == (1,)
    assert problem.committee_difference([0], [1, 2]) == pytest.approx(GAMMA)
