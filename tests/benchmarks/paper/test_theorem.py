"""Theorem 1: its bound, objectives, optimum and paths, on numbers that a pencil can check."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.theorem import (
    GRADIENT_NORM,
    AveragingSelection,
    CommitteeSelection,
    Constants,
    ConvexProblem,
    Objective,
    PathSettings,
    TrainingPath,
    bound_after,
    minimum,
    objective_of,
    play,
    vector_of_weights,
    weights_of,
)
from clients.configuration.loading import load
from clients.datasets.federated_data import DataForm, FederatedData, Samples, as_stored
from clients.experiments.definition import Method
from clients.experiments.kinds import MethodRun, MethodTask, Stopwatch
from clients.models.model import load_vector
from clients.models.registry import model_named
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

MU = 1 / log(3)
"""For one sample at x = 1 the minimum has scores ln(3)/2 and -ln(3)/2 then: odds of 3 to 1."""

ONE_SAMPLE = log(4 / 3) + log(3) / 8
"""F_k* there: -ln(3/4), and mu/2 times the four squares of ln(3)/4."""


def one_sample(label: int, mu: float = MU) -> Objective:
    """Return the objective of a client with a single sample, x = 1, and two classes."""
    return Objective(np.ones((1, 2)), np.array([label]), 2, mu)


def divided(*clients: tuple[tuple[float, ...], tuple[int, ...]]) -> FederatedData:
    """Return data of one feature: of each client its x and its labels."""
    parts = tuple(
        Samples(np.array(x, dtype=np.float32)[:, None], np.array(y, dtype=np.int64))
        for x, y in clients
    )
    x, y = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return FederatedData("pencil", DataForm((1,), 2), parts, Samples(x, y))


OPPOSED = divided(((1.0,), (0,)), ((1.0,), (1,)))
"""Two clients that see the same x and call it by the two labels: together they know nothing."""


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
    return found["total"]


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


@given(st.integers(1, 10_000), st.floats(0.1, 1.0), st.floats(1.0, 3.0), st.floats(0.0, 10.0))
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
    assert total(constants, steps + 1) < found["total"]
    assert found["total"] > found["lasting"] >= 0
    # A larger phi_min is a smaller bound: what the paper concludes from it.
    assert total(replace(constants, least_gap=least / 2), steps) > found["total"]


def drawn(seed: int, samples: int = 5, classes: int = 3, mu: float = 0.1) -> Objective:
    rng = np.random.default_rng(seed)
    inputs = np.concatenate([rng.standard_normal((samples, 2)), np.ones((samples, 1))], axis=1)
    return Objective(inputs, rng.integers(classes, size=samples), classes, mu)


def test_one_sample_at_zero_and_at_its_minimum() -> None:
    objective = one_sample(0)
    assert objective.value(np.zeros((2, 2))) == pytest.approx(log(2))
    # p = 1/2 for both classes: the residuals are -1/2 and 1/2, times x = (1, 1).
    assert objective.gradient(np.zeros((2, 2))).tolist() == [[-0.5, -0.5], [0.5, 0.5]]
    least = log(3) / 4 * np.array([[1.0, 1.0], [-1.0, -1.0]])
    assert objective.value(least) == pytest.approx(ONE_SAMPLE)
    assert np.abs(objective.gradient(least)).max() < 1e-15
    assert objective.accuracy(least) == 1.0
    assert one_sample(1).accuracy(least) == 0.0


@pytest.mark.parametrize("samples", [2, 3, 7])
def test_the_smoothness_is_that_of_the_largest_singular_value(samples: int) -> None:
    objective = drawn(5, samples=samples, mu=0.25)
    largest = np.linalg.norm(objective.inputs, ord=2)
    assert objective.smoothness == pytest.approx(largest**2 / samples / 2 + 0.25)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_value_and_gradient_are_those_of_torch(seed: int) -> None:
    objective = drawn(seed)
    weights = np.random.default_rng(seed + 1).standard_normal((3, 3))
    tensor = torch.tensor(weights, requires_grad=True)
    scores = torch.tensor(objective.inputs) @ tensor.T
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(objective.labels))
    loss = loss + objective.mu / 2 * tensor.square().sum()
    loss.backward()
    assert tensor.grad is not None
    assert objective.value(weights) == pytest.approx(loss.item())
    np.testing.assert_allclose(objective.gradient(weights), tensor.grad.numpy(), atol=1e-12)


@given(st.integers(0, 50))
def test_neither_smoothness_nor_strong_convexity_is_exceeded(seed: int) -> None:
    objective = drawn(seed)
    rng = np.random.default_rng(seed + 1)
    here, there = rng.standard_normal((2, 3, 3))
    way = there - here
    excess = objective.value(there) - objective.value(here)
    excess -= float(np.sum(way * objective.gradient(here)))
    half = float(np.sum(way * way)) / 2
    assert objective.mu * half - 1e-12 <= excess <= objective.smoothness * half + 1e-12


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_moments_are_those_over_all_batches(size: int) -> None:
    objective = drawn(7)
    weights = np.random.default_rng(8).standard_normal((3, 3))
    residuals, whole = objective.residuals(weights), objective.gradient(weights)
    gradients = [
        objective.gradient(weights, residuals, np.array(rows))
        for rows in combinations(range(objective.samples), size)
    ]
    second = np.mean([np.sum(gradient**2) for gradient in gradients])
    variance = np.mean([np.sum((gradient - whole) ** 2) for gradient in gradients])
    found = objective.gradient_moments(weights, residuals, size)
    assert found == pytest.approx((second, variance))


def test_it_is_the_model_softmax() -> None:
    form = DataForm((1, 2, 2), 3)
    model = model_named("softmax", form, {})
    vector = model.initial(np.random.default_rng(0))
    samples = Samples(
        np.random.default_rng(1).random((4, 1, 2, 2), dtype=np.float32), np.array([0, 1, 2, 0])
    )
    objective = objective_of(samples, as_stored, form.classes, mu=0.0)
    module = model.module()
    load_vector(module, torch.tensor(vector))
    with torch.no_grad():
        scores = module(torch.tensor(samples.x))
        expected = torch.nn.functional.cross_entropy(scores, torch.tensor(samples.y)).item()
    weights = weights_of(vector, form.classes)
    assert weights.shape == (3, 5)
    assert objective.value(weights) == pytest.approx(expected, rel=1e-6)
    assert vector_of_weights(weights).tobytes() == vector.tobytes()


GAMMA = log(2) - ONE_SAMPLE
ZERO = np.zeros((2, 2))


def test_the_minimum_of_one_sample() -> None:
    weights, value = minimum(one_sample(0))
    assert value == pytest.approx(ONE_SAMPLE, abs=1e-12)
    expected = log(3) / 4 * np.array([[1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert np.linalg.norm(one_sample(0).gradient(weights)) < GRADIENT_NORM


def test_a_minimum_that_is_out_of_reach_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"mu = 0.9.*: the gradient is .* below 1e-06"):
        minimum(one_sample(0), most_steps=1)


@given(st.integers(0, 30), st.sampled_from([1.0, 0.01]))
def test_nothing_is_lower_than_the_minimum(seed: int, mu: float) -> None:
    rng = np.random.default_rng(seed)
    inputs = np.concatenate([rng.standard_normal((6, 2)), np.ones((6, 1))], axis=1)
    objective = Objective(inputs, rng.integers(3, size=6), 3, mu)
    weights, value = minimum(objective)
    assert np.linalg.norm(objective.gradient(weights)) < GRADIENT_NORM
    for scale in (1e-2, 1.0):
        away = scale * rng.standard_normal((3, 3))
        assert objective.value(weights + away) > value + mu / 4 * np.sum(away * away)


def test_two_clients_of_opposite_opinions() -> None:
    # Together they are best off at W = 0, where F* = ln 2.
    problem = ConvexProblem(OPPOSED, MU)
    assert problem.optimal_value == pytest.approx(log(2))
    assert np.abs(problem.optimum).max() < 1e-6
    assert problem.minima.tolist() == pytest.approx([ONE_SAMPLE, ONE_SAMPLE])
    assert problem.heterogeneity == pytest.approx(GAMMA)
    assert problem.smoothness == pytest.approx(1 + MU)
    assert problem.gamma == pytest.approx(4 * (log(3) + 1))


def test_clients_weigh_as_much_as_their_samples() -> None:
    problem = ConvexProblem(divided(((1.0,), (0,)), ((1.0, 1.0, 1.0), (1, 1, 1))), MU)
    assert problem.shares.tolist() == [0.25, 0.75]
    assert problem.shares_among([1]).tolist() == [1.0]
    assert problem.mean_over([0, 1], np.array([4.0, 8.0])) == pytest.approx(7.0)
    values = problem.values(ZERO)
    assert float(problem.shares @ values) == pytest.approx(problem.together.value(ZERO))


def test_the_best_committee_has_the_smallest_minima() -> None:
    # A client that contradicts itself is least certain; ties go to the smaller number.
    contrary = ((1.0, 1.0), (0, 1))
    problem = ConvexProblem(divided(contrary, ((1.0,), (0,)), ((1.0,), (0,))), MU)
    assert problem.minima[0] == pytest.approx(log(2))
    assert problem.best_committee(2) == (1, 2)
    assert problem.best_committee(1) == (1,)
    assert problem.committee_difference([0], [1, 2]) == pytest.approx(GAMMA)


def path_settings(
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
    problem = ConvexProblem(divided(((1.0,), (0,))), MU)
    path = TrainingPath(problem, AveragingSelection(1, 1), ZERO, path_settings())
    # The gradient at 0 is -1/2 and 1/2 in each row: W is 1/4 and -1/4 after a step of 1/2.
    (one,) = path.rounds
    assert one.accepted == (0,)
    assert one.weights.tolist() == [[0.25, 0.25], [-0.25, -0.25]]
    assert one.error == pytest.approx(problem.together.value(one.weights) - ONE_SAMPLE)


def test_what_two_clients_of_opposite_opinions_show() -> None:
    problem = ConvexProblem(OPPOSED, MU)
    path = TrainingPath(problem, AveragingSelection(2, 2), ZERO, path_settings(rounds=3))
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
    assert bound["lasting"] == pytest.approx(0.0, abs=1e-9)
    assert bound["total"] > path.rounds[-1].error


def test_gradient_descent_with_the_theorems_steps_comes_near_the_optimum() -> None:
    data = divided(((1.0, -1.0), (0, 1)), ((2.0, -1.0), (0, 0)), ((0.5, 1.0), (1, 0)))
    problem = ConvexProblem(data, 0.5)
    plan = PathSettings(
        rounds=60,
        local_steps=2,
        batch_size=2,
        step_size=lambda step: 1 / (problem.mu * (step + problem.gamma)),
        members=1,
        seed=0,
    )
    path = TrainingPath(problem, AveragingSelection(3, 3), ZERO, plan)
    errors = [one.error for one in path.rounds]
    assert 0 <= errors[-1] < 0.02 < errors[0]
    assert path.constants is not None
    for number, error in enumerate(errors, start=1):
        bound = bound_after(2 * number, path.constants)
        assert bound is not None
        assert error <= bound["total"]


def drawn_updates(count: int) -> dict[ClientId, np.ndarray]:
    rng = np.random.default_rng(count)
    return {ClientId(k): rng.standard_normal(6).astype(np.float32) for k in range(count)}


@pytest.mark.parametrize("rules", [("protocol.strategy=1",), ("protocol.strategy=3",)])
def test_a_committee_accepts_trainers_and_elects_others(rules: tuple[str, ...]) -> None:
    parameters = load("smoke", settings=rules).parameters(dimension=6)
    committee = CommitteeSelection(parameters)
    seed, model = sha256(b"round 1"), np.zeros(6, dtype=np.float32)
    active = committee.active(seed)
    assert len(active) == len(set(active)) == 10
    updates = {client: update for client, update in drawn_updates(12).items() if client in active}
    accepted = committee.accepted(model, updates)
    assert 1 <= len(accepted) <= 6
    again = CommitteeSelection(parameters)
    assert again.active(seed) == active
    assert again.accepted(model, dict(reversed(updates.items()))) == accepted
    # Whoever was accepted had trained, and so sat on no committee; the elected sit next.
    following = committee.active(sha256(b"round 2"))
    assert len(following) == 10
    assert committee.accepted(model, {client: drawn_updates(12)[client] for client in following})


def played(*settings: str, **options: object) -> MethodRun:
    configuration = load("smoke", settings=("protocol.rounds=3", "seed=3", *settings))
    method = Method(name="one", kind="theorem", options=dict(options))
    return play(MethodTask(configuration, method, False, Stopwatch(), lambda: None))


@pytest.fixture(scope="module")
def runs() -> dict[bool, MethodRun]:
    return {averaging: played(mu=1.0, averaging=averaging) for averaging in (False, True)}


@pytest.mark.parametrize("averaging", [True, False])
def test_a_row_has_error_and_bound_of_both_step_sizes(
    runs: dict[bool, MethodRun], averaging: bool
) -> None:
    run = runs[averaging]
    assert json.loads(json.dumps(run.extra, allow_nan=False)) == run.extra
    found: Any = run.extra["theorem"]
    assert found["gamma"] == pytest.approx(4 * found["smoothness"] / found["mu"])
    assert found["heterogeneity"] > 0
    assert len(found["best_committee"]) == 4
    assert set(found["step_sizes"]) == {"theorem", "rate"}
    for told in found["step_sizes"].values():
        assert len(told["error"]) == len(told["bound"]) == 3
        assert all(0 <= e < b for e, b in zip(told["error"], told["bound"], strict=True))
        assert told["terms"]["total"] == told["bound"][-1]
        assert 0 < told["constants"]["least_gap"] <= told["constants"]["largest_gap"]
    assert run.times_aggregated is not None
    assert len(run.samples) == len(run.times_aggregated) == 12
    assert sum(run.times_aggregated) == 3 * (6 if averaging else 3)
    last = run.rounds[-1].quality
    assert last.accuracy is not None
    assert run.floor is not None
    assert last.accuracy > run.floor
    assert last.loss is not None
    assert last.training_loss is not None
    assert len(run.rounds) == 3


def test_a_row_follows_from_its_seed_alone(runs: dict[bool, MethodRun]) -> None:
    assert played(mu=1.0) == runs[False]
    assert played("seed=4", mu=1.0) != runs[False]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("model.name=cnn",), "model.name = cnn: Theorem 1 needs a strongly convex objective"),
        (
            ("malice.attack=same-value", "malice.malicious_rate=0.3"),
            "malice is set: Theorem 1 is about honest clients",
        ),
    ],
)
def test_what_the_theorem_is_not_about_is_refused(settings: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        played(*settings)
    assert sentence in str(refused.value)
