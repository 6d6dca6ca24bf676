"""What is read as a chain of layers, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.registry import MODELS, model_named
from clients.training.lockstep.layers import (
    Convolution,
    Linear,
    MaxPool,
    Relu,
    Reshape,
    ShapedLayer,
    pooled_first,
)
from clients.training.lockstep.tracing import UnknownLayerError, chain_of
from tests.clients.training.lockstep.support import FORM

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGES = DataForm((1, 28, 28), 62)
WEIGHT, BIAS = "linear.weight", "linear.bias"


class Written(nn.Module):
    """A module whose forward is given."""

    def __init__(self, forward: Callable[[Written, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.convolution = nn.Conv2d(1, 2, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(10))
        self.written = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.written(self, x)


class OnlyLinear(nn.Module):
    def __init__(self, forward: Callable[[OnlyLinear, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.written = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.written(self, x)


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.linear(x.flatten(1)),
        lambda m, x: m.linear(x.view(-1, 64)),
        lambda m, x: m.linear(x.view(x.size(0), -1)),
        lambda m, x: functional.linear(x.flatten(1), m.linear.weight, bias=m.linear.bias),
    ],
)
def test_a_flattened_linear_layer_is_read_however_it_is_written(
    forward: Callable[[OnlyLinear, torch.Tensor], torch.Tensor],
) -> None:
    assert chain_of(OnlyLinear(forward), FORM) == (
        ShapedLayer(Reshape(), (1, 8, 8), (64,)),
        ShapedLayer(Linear(WEIGHT, BIAS, 64, 10), (64,), (10,)),
    )


def test_convolution_and_pooling_keep_all_their_options() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 3, (5, 3), stride=(2, 1), padding=(2, 1), dilation=1),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.Identity(),
        nn.Conv2d(3, 4, 3, padding="same", bias=False),
        nn.Dropout(0.0),
        nn.Flatten(),
        nn.Linear(4 * 5 * 9, 10),
    )
    first, relu, pool, same, second, *_ = chain_of(module, FORM)
    assert first.layer == Convolution("0.weight", "0.bias", (3, 1, 5, 3), (2, 1), (2, 1), (1, 1))
    assert relu.layer == Relu()
    assert pool == ShapedLayer(MaxPool((2, 2), (1, 1), (1, 1)), (3, 4, 8), (3, 5, 9))
    assert same == ShapedLayer(Reshape(), (3, 5, 9), (3, 5, 9))
    assert second.layer == Convolution("4.weight", None, (4, 3, 3, 3), (1, 1), (1, 1), (1, 1))


OF_TOKENS = {"sent140_lstm", "shakespeare_lstm", "hf"}


@pytest.mark.parametrize("name", sorted({*MODELS} - OF_TOKENS))
def test_the_built_in_models_of_images_are_chains(name: str) -> None:
    model = model_named(name, IMAGES)
    chain = chain_of(model.module(), IMAGES)
    assert chain[-1].output_shape == (62,)
    named = [n for link in chain for n in (getattr(link.layer, "weight", None),) if n]
    assert named == [n for n, shape in model.layout if len(shape) > 1]


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda m, x: torch.tanh(m.linear(x.flatten(1))), "tanh"),
        (lambda m, x: m.linear(x.flatten(1)) * m.scale, "mul"),
        (lambda m, x: m.linear(x.flatten(1)) + m.linear(x.flatten(1)), "the layer before alone"),
        (lambda m, x: m.linear(x.flatten(1)), "is not trained by exactly one layer"),
        (lambda m, x: m.linear(x.flatten(1)[:, :64]), "getitem"),
        (lambda m, x: m.linear(x.transpose(2, 3).flatten(1)), "transpose"),
        (lambda m, x: m.linear(x.flatten(1)) if x.sum() > 0 else x, "cannot be traced"),
        (lambda m, x: m.linear(x), "cannot be followed"),
        (lambda m, x: m.linear(x.reshape(-1, 8, 8).flatten(1)).flatten(0), "keep samples apart"),
        (lambda _, x: functional.max_pool2d(x, 2, ceil_mode=True), "pooling of a kind"),
        (lambda _, x: x, "is not trained by exactly one layer"),
    ],
)
def test_anything_else_is_refused_with_what_it_is(
    forward: Callable[[Written, torch.Tensor], torch.Tensor], reason: str
) -> None:
    with pytest.raises(UnknownLayerError, match=reason):
        chain_of(Written(forward), FORM)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(1, 2, 3, padding_mode="reflect"), "border of other than zeros"),
        (nn.Conv2d(1, 2, 2, padding="same", dilation=3), "odd border"),
        (nn.MaxPool2d(2, dilation=2), "pooling of a kind"),
        (nn.Dropout(0.5), "Dropout"),
        (nn.BatchNorm2d(1), "BatchNorm2d"),
        (nn.Linear(8, 8), "takes inputs of shape"),
    ],
)
def test_layer_of_an_unknown_kind_is_named_in_the_refusal(layer: nn.Module, reason: str) -> None:
    with pytest.raises(UnknownLayerError, match=reason):
        chain_of(nn.Sequential(layer, nn.Flatten()), FORM)


def test_a_frozen_or_a_shared_parameter_is_refused() -> None:
    frozen = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    frozen[1].bias.requires_grad_(False)
    with pytest.raises(UnknownLayerError, match=r"1\.bias is not trained"):
        chain_of(frozen, FORM)
    layer = nn.Linear(64, 64)
    with pytest.raises(UnknownLayerError, match="is not trained by exactly one layer"):
        chain_of(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer), FORM)


def test_tokens_are_refused() -> None:
    form = DataForm((5,), 2, input_dtype="int64", vocabulary=9)
    with pytest.raises(UnknownLayerError, match="its inputs are int64"):
        chain_of(nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(10, 2)), form)


def test_pooling_goes_before_the_relu_that_it_follows() -> None:
    relu = ShapedLayer(Relu(), (2, 4, 4), (2, 4, 4))
    pool = ShapedLayer(MaxPool((2, 2), (2, 2), (0, 0)), (2, 4, 4), (2, 2, 2))
    flat = ShapedLayer(Reshape(), (2, 2, 2), (8,))
    swapped = (pool, ShapedLayer(Relu(), (2, 2, 2), (2, 2, 2)), flat)
    assert pooled_first((relu, pool, flat)) == swapped
    assert pooled_first(swapped) == swapped
