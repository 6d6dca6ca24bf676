"""The built-in models: their vectors, layouts, sizes, first parameters, and what they compute."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.model import Model, Option, load_vector, seed_torch, trainable, vector_of
from clients.models.registry import MODELS, model_named
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import require_layout
from tests.clients.models.forms import CHARACTERS, IMAGES, SCALED_DOWN, samples, words

SMALL, LARGE = DataForm((1, 8, 8), 10), DataForm((1, 28, 28), 10)
ALL = [model_named(name, form) for name in ("softmax", "cnn") for form in (SMALL, LARGE)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ids(model: Model) -> str:
    return f"{model.name}-{model.form.input_shape[-1]}"


@pytest.mark.parametrize("model", ALL, ids=ids)
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
    softmax = model_named("softmax", SMALL)
    assert softmax.layout == (("weights", (10, 64)), ("biases", (10,)))
    with pytest.raises(ParametersError, match="its tensors have 650 numbers, and d = 651"):
        require_layout(softmax.layout, 651)


@pytest.mark.parametrize("model", ALL, ids=ids)
def test_the_initial_model_follows_from_the_stream_not_torch(model: Model) -> None:
    torch.manual_seed(1)
    first = model.initial(rng(5))
    torch.manual_seed(2)
    assert np.array_equal(first, model.initial(rng(5)))
    assert not np.array_equal(first, model.initial(rng(6)))


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_seeds_are_those_of_torch(seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        seed_torch(seed)
        assert torch.equal(torch.rand(3), expected)


def test_the_first_numbers_of_a_seed_never_change() -> None:
    # By hand: normal draws in the order of the layout, times the scale of each.
    softmax = model_named("softmax", SMALL).initial(rng(5))
    assert np.array_equal(softmax[:640], (rng(5).standard_normal(640) * 0.01).astype(np.float32))
    draws = rng(5)
    first, second = draws.standard_normal(72), draws.standard_normal(16 * 8 * 9)
    cnn = model_named("cnn", SMALL).initial(rng(5))
    assert cnn[:72] == pytest.approx(first * (2 / 9) ** 0.5)
    assert cnn[80 : 80 + 1152] == pytest.approx(second * (2 / 72) ** 0.5)


def test_the_cnn_halves_large_images_twice_and_small_once() -> None:
    def dimension(side: int) -> int:
        return model_named("cnn", DataForm((1, side, side), 2)).dimension

    assert dimension(16) == 80 + 1168 + 2 * (16 * 8 * 8 + 1)
    assert dimension(17) == 80 + 1168 + 2 * (16 * 5 * 5 + 1)


@pytest.mark.parametrize("model", ALL, ids=ids)
def test_a_vector_survives_a_round_trip_through_a_module(model: Model) -> None:
    module, vector = model.module(), rng(3).random(model.dimension, dtype=np.float32)
    load_vector(module, torch.tensor(vector))
    assert np.array_equal(vector_of(module), vector)
    with pytest.raises(ValueError, match=rf"parameters for a module of {model.dimension}"):
        load_vector(module, torch.zeros(model.dimension + 1))


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'vgg'; known are softmax, cnn"):
        model_named("vgg", SMALL)


def test_the_cnn_refuses_non_images_that_softmax_accepts() -> None:
    assert model_named("softmax", DataForm((5,), 2)).dimension == 12
    with pytest.raises(ConfigurationError, match=r"^model.name = 'cnn': needs images"):
        model_named("cnn", DataForm((5,), 2))


@pytest.mark.parametrize("name", ["softmax", "cnn"])
def test_tokens_and_unknown_options_are_refused(name: str) -> None:
    tokens = DataForm((5,), 2, "int64", vocabulary=9)
    with pytest.raises(ConfigurationError, match=r"^model.name = '\w+': needs numbers, and these"):
        model_named(name, tokens)
    with pytest.raises(ConfigurationError, match=r"hidden = 3: .* has no options"):
        model_named(name, SMALL, {"hidden": 3})


Array = NDArray[np.float64]


@pytest.mark.parametrize(
    ("name", "form", "options", "dimension"),
    [
        ("softmax", IMAGES, {}, 48_670),
        ("cnn", IMAGES, {}, 80 + 1_168 + 48_670),
        ("leaf_cnn", IMAGES, {}, 6_603_710),
        ("alexnet", IMAGES, {}, 28_727_038),
        ("sent140_lstm", words(300), {}, 243_861),
        ("sent140_lstm", words(25), {}, 133_861),
        ("shakespeare_lstm", CHARACTERS, {}, 817_872),
        ("shakespeare_lstm", CHARACTERS, {"hidden": 100}, 132_720),
    ],
)
def test_each_model_has_as_many_parameters_as_the_readme_states(
    name: str, form: DataForm, options: dict[str, Option], dimension: int
) -> None:
    assert model_named(name, form, options).dimension == dimension


def test_the_scaled_down_list_leaves_no_model_out() -> None:
    # Bases of `hf` are in tests/clients/adapters.
    assert [*(name for name, *_ in SCALED_DOWN), "hf"] == list(MODELS)


def test_the_leaf_cnn_equals_its_layers_written_out() -> None:
    model = model_named("leaf_cnn", IMAGES, {"hidden": 8})
    module, x = model.module(), torch.rand(2, 1, 28, 28)
    load_vector(module, torch.tensor(model.initial(rng())))
    w: Any = dict(trainable(module))
    hidden = functional.conv2d(x, w["convolution1.weight"], w["convolution1.bias"], padding=2)
    hidden = functional.max_pool2d(hidden.relu(), 2)
    hidden = functional.conv2d(hidden, w["convolution2.weight"], w["convolution2.bias"], padding=2)
    hidden = functional.max_pool2d(hidden.relu(), 2)
    assert hidden.shape == (2, 64, 7, 7)
    hidden = (hidden.flatten(1) @ w["linear1.weight"].T + w["linear1.bias"]).relu()
    expected = hidden @ w["linear2.weight"].T + w["linear2.bias"]
    assert torch.allclose(module(x), expected, rtol=1e-4, atol=1e-6)


def cell(x: Array, state: Array, memory: Array, weights: dict[str, Array], layer: int) -> Any:
    """One step of TensorFlow's BasicLSTMCell, its gates in torch's order."""
    gates = (
        x @ weights[f"lstm.weight_ih_l{layer}"].T + state @ weights[f"lstm.weight_hh_l{layer}"].T
    )
    take, forget, candidate, give = np.split(gates + weights[f"lstm.bias_ih_l{layer}"], 4, axis=1)
    memory = memory * sigmoid(forget + 1.0) + sigmoid(take) * np.tanh(candidate)
    return sigmoid(give) * np.tanh(memory), memory


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def last_state(steps: Array, weights: dict[str, Array]) -> Array:
    """The upper layer's state after the last step, from steps of shape (n, length, inputs)."""
    states = steps
    for layer in (0, 1):
        hidden = weights[f"lstm.weight_hh_l{layer}"].shape[1]
        state = memory = np.zeros((len(steps), hidden))
        found = []
        for step in range(steps.shape[1]):
            state, memory = cell(states[:, step], state, memory, weights, layer)
            found.append(state)
        states = np.stack(found, axis=1)
    return states[:, -1]


@pytest.mark.parametrize("place", [4, 5], ids=["sent140", "shakespeare"])
def test_text_models_equal_numpy_lstms_with_forget_bias_one(place: int) -> None:
    name, form, options = SCALED_DOWN[place]
    model = model_named(name, form, options)
    module, x = model.module(), samples(form, 3).x
    # Biases too, so that their places in the gates matter.
    load_vector(module, torch.tensor(rng(4).standard_normal(model.dimension) * 0.4).float())
    weights = {key: tensor.detach().double().numpy() for key, tensor in trainable(module)}
    if form.embedding is not None:
        hidden = last_state(form.embedding[x].astype(float), weights)
        hidden = hidden @ weights["linear1.weight"].T + weights["linear1.bias"]
        logit = hidden @ weights["linear2.weight"].T + weights["linear2.bias"]
        expected = np.concatenate([0 * logit, logit], axis=1)
    else:
        hidden = last_state(weights["embedding.weight"][x], weights)
        expected = hidden @ weights["linear.weight"].T + weights["linear.bias"]
    assert module(torch.tensor(x)).detach().numpy() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_text_models_start_as_tensorflow_draws_them() -> None:
    # One kernel (8 + 256 inputs, 4 x 256 outputs): uniform within sqrt(6 / 1288) = 0.06825.
    model = model_named("shakespeare_lstm", CHARACTERS)
    ends = np.cumsum([np.prod(shape) for _, shape in model.layout])
    names = [name for name, _ in model.layout]
    parts = dict(zip(names, np.split(model.initial(rng()), ends[:-1]), strict=True))
    for name in ("lstm.weight_ih_l0", "lstm.weight_hh_l0"):
        assert np.abs(parts[name]).max() == pytest.approx((6 / 1288) ** 0.5, rel=1e-3)
    assert np.abs(parts["linear.weight"]).max() == pytest.approx((6 / 336) ** 0.5, rel=1e-3)
    assert not parts["lstm.bias_ih_l0"].any()


@pytest.mark.parametrize(
    ("name", "form", "options", "sentence"),
    [
        ("leaf_cnn", DataForm((9,), 2), {}, r"needs images \(channels, height, width\)"),
        ("leaf_cnn", DataForm((1, 3, 9), 2), {}, "at least 4 x 4, not shape"),
        ("alexnet", DataForm((1, 32, 32), 2), {}, r"needs images \(channels, 28, 28\)"),
        ("alexnet", IMAGES, {"hidden": 0}, r"hidden = 0: .* whole number, 1 \.\. 65536"),
        ("alexnet", IMAGES, {"dropout": 0.5}, "dropout = 0.5: 'alexnet' has hidden"),
        ("shakespeare_lstm", IMAGES, {}, "needs tokens, not float32"),
        ("sent140_lstm", CHARACTERS, {}, "needs a vector of each word"),
        ("sent140_lstm", words(25), {"width": 300}, "width = 300: .* have 25"),
        (
            "sent140_lstm",
            DataForm((25,), 3, "int64", 10, np.zeros((10, 4), dtype=np.float32)),
            {},
            "distinguishes two classes, not 3",
        ),
    ],
)
def test_what_a_model_cannot_take_is_refused_with_the_rule(
    name: str, form: DataForm, options: dict[str, Option], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        model_named(name, form, options)
