"""The models as functions of a flat vector, and their evaluation."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from clients.devices import device_named, reproducible
from clients.models.cnn import ConvolutionalNetwork
from clients.models.evaluation import evaluate, majority_rate
from clients.models.registry import MODELS, model_named
from clients.models.softmax import SoftmaxRegression
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import require_layout

if TYPE_CHECKING:
    from clients.models.model import Model

SHAPES = [(1, 8, 8), (1, 28, 28)]
ALL = [model_named(name, shape, 10) for name in MODELS for shape in SHAPES]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("name", "shape", "dimension"),
    [
        ("softmax", (1, 8, 8), 650),
        ("softmax", (1, 28, 28), 7850),
        ("cnn", (1, 8, 8), 80 + 1168 + 2570),
        ("cnn", (1, 28, 28), 80 + 1168 + 7850),
    ],
)
def test_a_model_is_one_vector_of_known_length(
    name: str, shape: tuple[int, ...], dimension: int
) -> None:
    model = model_named(name, shape, 10)
    vector = model.initial(rng())
    assert model.dimension == dimension
    assert vector.shape == (dimension,)
    assert vector.dtype == np.float32
    logits = model.logits(torch.tensor(vector), torch.zeros(3, *shape))
    assert logits.shape == (3, 10)


@pytest.mark.parametrize("model", ALL)
def test_the_layout_says_what_the_numbers_of_the_vector_are(model: Model) -> None:
    require_layout(model.layout, model.dimension)
    names = [name for name, _ in model.layout]
    ends = np.cumsum([prod(shape) for _, shape in model.layout])
    vector = model.initial(rng())
    parts = dict(zip(names, np.split(vector, ends[:-1]), strict=True))
    for name, part in parts.items():
        assert name.endswith(("weights", "biases"))
        assert part.any() == name.endswith("weights"), "only biases start at 0"


def test_a_layout_of_another_model_is_refused() -> None:
    softmax = model_named("softmax", (1, 8, 8), 10)
    assert softmax.layout == (("weights", (10, 64)), ("biases", (10,)))
    with pytest.raises(ParametersError, match="its tensors have 650 numbers, and d = 651"):
        require_layout(softmax.layout, 651)


@pytest.mark.parametrize("model", ALL)
def test_the_initial_model_follows_from_the_stream_and_not_from_torch(model: Model) -> None:
    torch.manual_seed(1)
    first = model.initial(rng(5))
    torch.manual_seed(2)
    assert np.array_equal(first, model.initial(rng(5)))
    assert not np.array_equal(first, model.initial(rng(6)))


@pytest.mark.parametrize("model", ALL)
def test_the_gradient_is_that_of_the_mean_cross_entropy(model: Model) -> None:
    shape = model.input_shape  # type: ignore[attr-defined]
    vector = torch.tensor(model.initial(rng())).double()
    x = torch.tensor(rng(1).random((6, *shape)))
    y = torch.tensor([0, 1, 2, 3, 4, 4])
    direction = torch.tensor(rng(2).standard_normal(model.dimension))

    def loss(step: float) -> float:
        return float(nn.cross_entropy(model.logits(vector + step * direction, x), y))

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert float(model.gradient(vector, x, y) @ direction) == pytest.approx(slope, rel=1e-5)


def test_the_softmax_gradient_by_pencil() -> None:
    # Two classes, one input, W = b = 0: both classes 1/2. One sample x = 3 of class 1:
    # residual (1/2, -1/2), so dW = (1.5, -1.5) and db = (0.5, -0.5).
    model = SoftmaxRegression((1, 1, 1), 2)
    gradient = model.gradient(torch.zeros(4), torch.full((1, 1, 1, 1), 3.0), torch.tensor([1]))
    assert gradient.tolist() == [1.5, -1.5, 0.5, -0.5]


def test_the_cnn_halves_a_large_image_twice_and_a_small_one_once() -> None:
    assert ConvolutionalNetwork((1, 16, 16), 2).dimension == 80 + 1168 + 2 * (16 * 8 * 8 + 1)
    assert ConvolutionalNetwork((1, 17, 17), 2).dimension == 80 + 1168 + 2 * (16 * 5 * 5 + 1)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'alexnet'; known are softmax, cnn"):
        model_named("alexnet", (1, 8, 8), 10)


def test_the_cnn_refuses_what_is_no_image_where_softmax_does_not() -> None:
    assert model_named("softmax", (5,), 2).dimension == 12
    with pytest.raises(ConfigurationError, match="needs images"):
        model_named("cnn", (5,), 2)


def test_evaluation_by_pencil() -> None:
    # Scores (x, 0): class 0 wins for x > 0. Three of four are right; the loss of a sample is
    # log(1 + e^-m) with m the margin of its class: 2, 2, 2 and -2.
    model = SoftmaxRegression((1, 1, 1), 2)
    vector = np.array([1, 0, 0, 0], dtype=np.float32)
    x = np.array([2, 2, -2, -2], dtype=np.float32).reshape(4, 1, 1, 1)
    accuracy, loss = evaluate(model, vector, x, np.array([0, 0, 1, 0]))
    assert accuracy == 0.75
    assert loss == pytest.approx((3 * np.log1p(np.exp(-2)) + np.log1p(np.exp(2))) / 4)


def test_evaluation_does_not_depend_on_how_the_inputs_are_cut_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SoftmaxRegression((1, 8, 8), 10)
    vector = rng().standard_normal(650).astype(np.float32)
    x, y = rng(1).random((50, 1, 8, 8)).astype(np.float32), rng(2).integers(0, 10, 50)
    whole = evaluate(model, vector, x, y)
    monkeypatch.setattr("clients.models.evaluation._BLOCK", 7)
    assert evaluate(model, vector, x, y) == pytest.approx(whole, rel=1e-6)


def test_evaluation_refuses_nothing_and_a_vector_of_another_length() -> None:
    model = SoftmaxRegression((1, 1, 1), 2)
    x, y = np.zeros((1, 1, 1, 1), dtype=np.float32), np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="nothing"):
        evaluate(model, model.initial(rng()), x[:0], y[:0])
    with pytest.raises(ValueError, match="for a model of 4"):
        evaluate(model, np.zeros(5, dtype=np.float32), x, y)


def test_the_floor_is_the_share_of_the_commonest_class() -> None:
    assert majority_rate(np.array([3, 3, 3, 0, 1])) == 0.6


def test_an_unknown_or_missing_device_is_refused() -> None:
    assert device_named("cpu").type == "cpu"
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigurationError, match="'gpu'; known are cpu, cuda, auto"):
        device_named("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigurationError, match="no CUDA"):
        device_named("cuda")


def test_the_thread_setting_of_the_caller_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with reproducible(torch.device("cpu")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
