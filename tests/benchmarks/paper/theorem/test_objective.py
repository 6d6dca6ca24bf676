"""Softmax regression with an L2 term: value, gradient, smoothness, and the moments of batches."""

from __future__ import annotations

from itertools import combinations
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.theorem.objective import (
    Objective,
    objective_of,
    vector_of_weights,
    weights_of,
)
from clients.datasets.federated_data import DataForm, Samples, as_stored
from clients.models.model import load_vector
from clients.models.registry import model_named
from tests.benchmarks.paper.theorem.pencil import ONE_SAMPLE, one_sample


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
        objective.mean_gradient(weights, residuals[list(rows)], objective.inputs[list(rows)])
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
