"""A run on the regularised objectives, and what it shows of the bound's constants."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from benchmarks.paper.theorem.bound import bound_after
from benchmarks.paper.theorem.problem import problem_of
from benchmarks.paper.theorem.selection_rules import AveragingSelection, CommitteeSelection
from benchmarks.paper.theorem.training_path import PathSettings, follow_path
from clients.configuration.loading import load
from ledger.protocol.encoding import sha256
from ledger.protocol.types import ClientId
from tests.benchmarks.paper.theorem.pencil import MU, ONE_SAMPLE, OPPOSED, divided

ZERO = np.zeros((2, 2))


def settings(
    rounds: int = 1, local_steps: int = 1, rate: float = 0.5, members: int = 1
) -> PathSettings:
    return PathSettings(
        rounds=rounds,
        local_steps=local_steps,
        batch_size=4,
        step_size=lambda _: rate,
        members=members,
        seed=0,
    )


def test_one_step_of_one_client_is_gradient_descent() -> None:
    problem = problem_of(divided(((1.0,), (0,))), MU)
    path = follow_path(problem, AveragingSelection(1, 1), ZERO, settings())
    # The gradient at 0 is -1/2 and 1/2 in each row: W is 1/4 and -1/4 after a step of 1/2.
    (one,) = path.rounds
    assert one.accepted == (0,)
    assert one.weights.tolist() == [[0.25, 0.25], [-0.25, -0.25]]
    assert one.error == pytest.approx(problem.together.value(one.weights) - ONE_SAMPLE)


def test_what_two_clients_of_opposite_opinions_show() -> None:
    problem = problem_of(OPPOSED, MU)
    path = follow_path(problem, AveragingSelection(2, 2), ZERO, settings(rounds=3))
    # They cancel each other: the model stays at 0, which is w*.
    assert [one.accepted for one in path.rounds] == [(0, 1)] * 3
    assert np.abs(path.rounds[-1].weights).max() < 1e-15
    assert path.rounds[-1].error == pytest.approx(0.0, abs=1e-12)
    found = path.constants
    assert found is not None
    assert found.gradient_squared == pytest.approx(1.0)  # four elements of 1/2
    assert found.variance == 0.0
    assert found.kappa_squared == pytest.approx(0.0, abs=1e-9)
    assert (found.least_gap, found.largest_gap) == pytest.approx((1.0, 1.0))
    assert found.start_squared == pytest.approx(0.0, abs=1e-9)
    assert found.heterogeneity == pytest.approx(log(2) - ONE_SAMPLE)
    bound = bound_after(3, found)
    assert bound is not None
    assert bound.lasting == pytest.approx(0.0, abs=1e-9)
    assert bound.total > path.rounds[-1].error


def test_gradient_descent_with_the_theorems_steps_comes_near_the_optimum() -> None:
    data = divided(((1.0, -1.0), (0, 1)), ((2.0, -1.0), (0, 0)), ((0.5, 1.0), (1, 0)))
    problem = problem_of(data, 0.5)
    plan = PathSettings(
        rounds=60,
        local_steps=2,
        batch_size=2,
        step_size=lambda step: 1 / (problem.mu * (step + problem.gamma)),
        members=1,
        seed=0,
    )
    path = follow_path(problem, AveragingSelection(3, 3), ZERO, plan)
    errors = [one.error for one in path.rounds]
    assert 0 <= errors[-1] < 0.02 < errors[0]
    assert path.constants is not None
    for number, error in enumerate(errors, start=1):
        bound = bound_after(2 * number, path.constants)
        assert bound is not None
        assert error <= bound.total


def drawn(count: int) -> dict[ClientId, np.ndarray]:
    rng = np.random.default_rng(count)
    return {ClientId(k): rng.standard_normal(6).astype(np.float32) for k in range(count)}


@pytest.mark.parametrize(
    "rules",
    [("protocol.strategy=1",), ("protocol.strategy=3",)],
)
def test_a_committee_accepts_trainers_and_elects_others(rules: tuple[str, ...]) -> None:
    parameters = load("smoke", settings=rules).parameters(dimension=6)
    committee = CommitteeSelection(parameters, layout=(("weights", (2, 2)), ("biases", (2,))))
    seed, model = sha256(b"round 1"), np.zeros(6, dtype=np.float32)
    active = committee.active(seed)
    assert len(active) == len(set(active)) == 10
    updates = {client: update for client, update in drawn(12).items() if client in active}
    accepted = committee.accepted(model, updates)
    assert 1 <= len(accepted) <= 6
    again = CommitteeSelection(parameters, layout=(("weights", (2, 2)), ("biases", (2,))))
    assert again.active(seed) == active
    assert again.accepted(model, dict(reversed(updates.items()))) == accepted
    # Whoever was accepted had trained, and so sat on no committee; the elected sit next.
    following = committee.active(sha256(b"round 2"))
    assert len(following) == 10
    assert committee.accepted(model, {client: drawn(12)[client] for client in following})
