"""The built-in models: their vectors, layouts and first parameters."""

from __future__ import annotations

import pickle
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from clients.datasets.federated_data import DataForm
from clients.models.model import load_vector, seed_torch, vector_of
from clients.models.registry import model_named
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import require_layout
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from clients.models.model import Model

SMALL, LARGE = DataForm((1, 8, 8), 10), DataForm((1, 28, 28), 10)
ALL = [model_named(name, form) for name in ("softmax", "cnn") for form in (SMALL, LARGE)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def ids(model: Model) -> str:
    return f"{model.name}-{model.form.input_shape[-1]}"


@pytest.mark.parametrize(
    ("name", "form", "dimension"),
    [
        ("softmax", SMALL, 650),
        ("softmax", LARGE, 7850),
        ("cnn", SMALL, 80 + 1168 + 2570),
        ("cnn", LARGE, 80 + 1168 + 7850),
    ],
)
def test_a_model_is_one_vector_of_known_length(name: str, form: DataForm, dimension: int) -> None:
    model = model_named(name, form)
    vector = model.initial(rng())
    assert model.dimension == dimension
    assert vector.shape == (dimension,)
    assert vector.dtype == np.float32
    assert model.module()(torch.zeros(3, *form.input_shape)).shape == (3, 10)


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


@pytest.mark.parametrize("model", ALL, ids=ids)
def test_a_pickled_model_is_the_same_model(model: Model) -> None:
    again: Model = pickle.loads(pickle.dumps(model))
    assert again.layout == model.layout
    assert np.array_equal(again.initial(rng()), model.initial(rng()))
    assert again.recorded() == {"name": model.name, "options": {}}
    assert (again.source, again.frozen_state) == (NO_DIGEST, NO_DIGEST)


def test_making_a_module_leaves_torchs_own_state_alone() -> None:
    torch.manual_seed(7)
    expected = float(torch.rand(1))
    torch.manual_seed(7)
    for model in ALL:
        model.initial(rng())
    assert float(torch.rand(1)) == expected


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
    with pytest.raises(
        ConfigurationError, match=r"^model.name = '\w+': needs numbers, and these inputs are"
    ):
        model_named(name, tokens)
    with pytest.raises(ConfigurationError, match=r"hidden = 3: .* has no options"):
        model_named(name, SMALL, {"hidden": 3})
