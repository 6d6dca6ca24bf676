"""What is read as a chain of layers, the layers by themselves, and steps that are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm, as_stored
from clients.models.registry import MODELS, model_named
from clients.training.lockstep import network
from clients.training.lockstep import trainer as trainers
from clients.training.lockstep.elementwise import (
    MaxPoolPart,
    OrderedMaxPoolPart,
    ReluPart,
    ReshapePart,
    channels_last,
)
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
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.update_writer import DownloadWriter
from tests.clients.training.lockstep.support import (
    EPOCHS,
    FORM,
    JOBS,
    SIZES,
    STEPS,
    TRAIN,
    error,
    updates,
)

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGES = DataForm((1, 28, 28), 62)
WEIGHT, BIAS = "linear.weight", "linear.bias"


class Written(nn.Module):
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
def test_a_flattened_linear_layer_is_read_however_it_is_written(forward: Any) -> None:
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
def test_anything_else_is_refused_with_what_it_is(forward: Any, reason: str) -> None:
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


@pytest.mark.parametrize(
    "layer",
    [
        MaxPool((2, 2), (2, 2), (0, 0)),
        MaxPool((3, 3), (2, 2), (1, 1)),
        MaxPool((2, 3), (1, 2), (1, 0)),
    ],
)
def test_both_pooling_methods_choose_equal_numbers_among_ties(layer: MaxPool) -> None:
    x = channels_last(torch.randint(0, 3, (4, 3, 7, 8)).float())
    one, other = MaxPoolPart(layer), OrderedMaxPoolPart(layer)
    y = one.forward(x, 0)
    assert torch.equal(y, other.forward(x, 0))
    dy = channels_last(torch.randint(1, 9, y.shape).float())  # whole numbers: sums are exact
    assert torch.equal(one.backward(dy, 0), other.backward(dy, 0))


def test_a_relu_passes_no_gradient_at_zero() -> None:
    part = ReluPart()
    assert part.forward(torch.tensor([[-1.0, 0.0, 2.0]]), 0).tolist() == [[0, 0, 2]]
    assert part.backward(torch.tensor([[5.0, 6.0, 7.0]]), 0).tolist() == [[0, 0, 7]]


def test_reshaping_goes_by_channel_row_and_column_whatever_the_memory() -> None:
    x = torch.arange(24.0).view(1, 2, 3, 4)
    part = ReshapePart((2, 3, 4), (24,))
    assert torch.equal(part.forward(channels_last(x), 0), x.flatten(1))
    assert torch.equal(part.backward(x.flatten(1), 0), x)


class WorksMeanwhile:
    """Records as CUDA does: the work is done a few times before it is asked for."""

    def __init__(self) -> None:
        self.replays = 0

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        for _ in range(3):
            work()

        def replay() -> None:
            self.replays += 1
            work()

        return replay


def test_recording_leaves_nothing_behind_in_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_named("cnn", FORM)
    start = model.initial(np.random.default_rng(5))
    arguments = (model, TRAIN, as_stored, STEPS, "cpu")
    expected = updates(LockstepTrainer(*arguments), start, JOBS)
    recorder = WorksMeanwhile()
    monkeypatch.setattr(trainers, "recorder_for", lambda _: recorder)
    recorded = LockstepTrainer(*arguments)
    assert updates(recorded, start, JOBS).tobytes() == expected.tobytes()
    chunks = -(-len(SIZES) // recorded.chunk)
    assert recorder.replays == 3 * chunks


def test_the_path_of_a_card_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but CUDA itself: the plan, the methods, recorded steps and downloads."""
    model = model_named("cnn", FORM)
    start = model.initial(np.random.default_rng(5))
    for settings in (STEPS, EPOCHS):
        arguments = (model, TRAIN, as_stored, settings, "cpu")
        expected = updates(PlainTrainer(*arguments), start, JOBS)
        with monkeypatch.context() as patched:
            patched.setattr(trainers, "card_gib", lambda _: 16)
            patched.setattr(trainers, "recorder_for", lambda _: WorksMeanwhile())
            patched.setattr(trainers, "update_writer", DownloadWriter)
            patched.setattr(network, "MaxPoolPart", OrderedMaxPoolPart)
            trainer = LockstepTrainer(*arguments)
        assert trainer.chunk == 32
        found = updates(trainer, start, JOBS)
        assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < 2e-5
