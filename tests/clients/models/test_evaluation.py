"""Accuracy and loss of a parameter vector for every task, wherever parts are computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients.datasets.federated_data import NO_TARGET, DataForm, FederatedData, Samples, Task
from clients.devices import reproducible
from clients.models import model as tasks
from clients.models.model import check_model, load_vector
from clients.models.registry import model_named
from clients.training import jobs
from clients.training.jobs import (
    BLOCK,
    batches_of,
    blocks,
    evaluate,
    evaluate_block,
    majority_rate,
    total,
)
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
            chosen = batches_of(Samples(x[part], y[part]), lambda rows: rows, CPU)
            rows = blocks(len(y[part]))
            found += [evaluate_block(module, model.form, chosen, each) for each in rows]
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


def test_the_thread_setting_of_the_caller_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with reproducible(CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


TWICE = math.log(2)
NETS = """
import torch
from torch import nn

class Tokens(nn.Module):
    def __init__(self, outputs=3, length=None):
        super().__init__()
        self.table = nn.Embedding(3, outputs)
        self.length = length

    def forward(self, x):
        scores = self.table(x.clamp(min=0))
        return scores if self.length is None else scores[:, : self.length]

class Line(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.last = nn.Linear(3, outputs)

    def forward(self, x):
        return self.last(x)
"""
X = np.array([[0, 1, 2, 1], [2, 1, -1, -1]])
NEXT = np.array([[1, 2, 1, NO_TARGET], [1, NO_TARGET, NO_TARGET, NO_TARGET]])
WORDS = DataForm((4,), 3, "int64", 3, task="causal-lm")
NUMBERS = DataForm((3,), 2, task="regress")


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(NETS)
    return path


def data_of(form: DataForm, x: np.ndarray, y: np.ndarray) -> FederatedData:
    samples = Samples(x, y)
    return FederatedData("made", form, (samples,), samples)


def test_tokens_without_a_target_count_nowhere() -> None:
    # Equal scores of two classes: each of the two counted tokens costs log 2.
    scores = torch.zeros(1, 3, 2)
    targets = torch.tensor([[0, 1, NO_TARGET]])
    assert float(tasks.training_loss("token-classify", scores, targets)) == pytest.approx(TWICE)
    correct, loss, counted = tasks.score("token-classify", scores, targets)
    assert (correct, counted) == (1, 2)
    assert loss == pytest.approx(2 * TWICE)


def test_numbers_are_measured_by_their_squared_error() -> None:
    # Errors 1 and 3 of one sample, none of the other: means 5 and 0.
    scores, targets = torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([[0.0, 0.0], [2.0, 2.0]])
    assert float(tasks.training_loss("regress", scores, targets)) == 2.5
    assert tasks.score("regress", scores, targets) == (None, 5.0, 2)


@pytest.mark.parametrize(
    ("task", "loss", "expected"),
    [
        ("causal-lm", math.log(8), 8.0),
        ("masked-lm", 0.0, 1.0),
        ("classify", 1.0, None),
        ("causal-lm", None, None),
        ("causal-lm", 1e6, None),
    ],
)
def test_language_has_a_perplexity(task: Task, loss: float | None, expected: float | None) -> None:
    value = tasks.perplexity(task, loss)
    assert value == expected or (value is not None and math.isclose(value, expected or 0))


def test_evaluation_counts_tokens(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_named(f"{nets}:Tokens", WORDS)
    # Token 0 is followed by 1, 1 by 2, 2 by 1, with certainty: four of four are right.
    vector = np.zeros((3, 3), np.float32)
    vector[[0, 1, 2], [1, 2, 1]] = 50
    whole = evaluate(model, vector.reshape(-1), Samples(X, NEXT))
    assert (whole.correct, whole.samples) == (4, 4)
    assert whole.loss == pytest.approx(0, abs=1e-9)
    monkeypatch.setattr(jobs, "MOST_SCORES", 1)
    assert evaluate(model, vector.reshape(-1), Samples(X, NEXT)) == whole


def test_regressed_numbers_have_no_accuracy(nets: Path) -> None:
    model = model_named(f"{nets}:Line", NUMBERS)
    y = np.array([[1, 3], [0, 0]], np.float32)
    found = evaluate(model, np.zeros(8, np.float32), Samples(np.ones((2, 3), np.float32), y))
    assert found == Evaluation(None, 5.0, 2)
    assert majority_rate(y) == 0


def test_the_floor_of_tokens_is_that_of_those_with_a_target() -> None:
    assert majority_rate(NEXT) == 3 / 4


def test_a_language_model_may_have_more_tokens_than_the_data(nets: Path) -> None:
    check_model(model_named(f"{nets}:Tokens", WORDS, {"outputs": 5}), data_of(WORDS, X, NEXT))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"outputs": 2}, r"of shape \(2, 4, 2\); must be scores of shape \(2, 4, 3\)"),
        ({"length": 3}, r"one row for each of its tokens and one column for each class"),
    ],
)
def test_scores_of_another_shape_are_refused(nets: Path, options: Any, sentence: str) -> None:
    model = model_named(f"{nets}:Tokens", WORDS, options)
    with pytest.raises(ConfigurationError, match=sentence):
        check_model(model, data_of(WORDS, X, NEXT))


def test_outputs_that_do_not_fit_the_numbers_are_refused(nets: Path) -> None:
    model = model_named(f"{nets}:Line", NUMBERS, {"outputs": 3})
    samples = np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)
    with pytest.raises(ConfigurationError, match="one column for each output"):
        check_model(model, data_of(NUMBERS, *samples))
