"""Accuracy and loss of a parameter vector, wherever its parts are computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clients.datasets.federated_data import DataForm, Samples
from clients.devices import device_named, reproducible
from clients.models.model import load_vector
from clients.models.registry import model_named
from clients.training.evaluation import BLOCK, evaluate, evaluate_part, majority_rate, total
from clients.training.port import Evaluation
from ledger.protocol.errors import ConfigurationError

SOFTMAX = model_named("softmax", DataForm((1, 1, 1), 2))
CPU = torch.device("cpu")


def samples(x: list[float], y: list[int]) -> Samples:
    return Samples(np.array(x, dtype=np.float32).reshape(-1, 1, 1, 1), np.array(y))


def halved(rows: np.ndarray) -> np.ndarray:
    return (rows / 2).astype(np.float32)


def test_evaluation_by_pencil() -> None:
    # Scores (x, 0): class 0 wins for x > 0. Three of four are right; the loss of a sample is
    # log(1 + e^-m) with m the margin of its class: 2, 2, 2 and -2.
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    found = evaluate(SOFTMAX, vector, samples([2, 2, -2, -2], [0, 0, 1, 0]))
    assert (found.correct, found.samples) == (3, 4)
    assert found.loss == pytest.approx(3 * np.log1p(np.exp(-2)) + np.log1p(np.exp(2)))


def test_what_is_stored_is_collated_before_it_is_scored() -> None:
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    stored = Samples(np.full((1, 1, 1, 1), 4, dtype=np.uint8), np.array([0]))
    found = evaluate(SOFTMAX, vector, stored, halved)
    assert found.loss == pytest.approx(np.log1p(np.exp(-2)))


def test_the_result_is_equal_however_blocks_are_distributed() -> None:
    model = model_named("softmax", DataForm((1, 8, 8), 10))
    vector = np.random.default_rng(0).standard_normal(650).astype(np.float32)
    count = 5 * BLOCK + 7
    x = np.random.default_rng(1).random((count, 1, 8, 8)).astype(np.float32)
    y = np.random.default_rng(2).integers(0, 10, count)
    whole = evaluate(model, vector, Samples(x, y))
    module = model.module()
    load_vector(module, torch.tensor(vector))
    found: list[Evaluation] = []
    with reproducible(CPU):
        for part in (slice(3 * BLOCK, None), slice(0, BLOCK), slice(BLOCK, 3 * BLOCK)):
            chosen = Samples(x[part], y[part])
            found += evaluate_part(module, model.form, lambda rows: rows, chosen, CPU)
    assert [one.samples for one in found] == [BLOCK, BLOCK, 7, BLOCK, BLOCK, BLOCK]
    assert total(found) == whole


def test_losses_are_summed_exactly_and_non_finite_ones_remain() -> None:
    # In turn, each 1 would be lost beside 1e16.
    parts = [Evaluation(1, loss, 2) for loss in (1e16, 1.0, 1.0)]
    assert total(parts) == Evaluation(3, 1e16 + 2, 6)
    assert total(parts) == total(parts[::-1])
    assert not math.isfinite(total([*parts, Evaluation(0, math.inf, 1)]).loss)
    overflowed = np.array([math.inf, 0, 0, 0], dtype=np.float32)
    assert not math.isfinite(evaluate(SOFTMAX, overflowed, samples([1, -1], [0, 0])).loss)


def test_evaluation_refuses_nothing_and_a_vector_of_another_length() -> None:
    one = samples([1], [0])
    with pytest.raises(ValueError, match="nothing"):
        evaluate(SOFTMAX, np.zeros(4, dtype=np.float32), Samples(one.x[:0], one.y[:0]))
    with pytest.raises(ValueError, match="for a module of 4"):
        evaluate(SOFTMAX, np.zeros(5, dtype=np.float32), one)


def test_the_floor_is_the_share_of_the_commonest_class() -> None:
    assert majority_rate(np.array([3, 3, 3, 0, 1])) == 0.6


def test_an_unknown_or_missing_device_is_refused() -> None:
    assert device_named("cpu").type == "cpu"
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigurationError, match="'gpu'; known are cpu, cuda, cuda:N, auto"):
        device_named("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigurationError, match="no CUDA"):
        device_named("cuda")


def test_the_thread_setting_of_the_caller_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with reproducible(CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
