"""The layers by themselves, and steps that are recorded before they are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from clients.datasets.federated_data import as_stored
from clients.local_sgd import LocalTraining
from clients.models.registry import model_named
from clients.training.lockstep import network
from clients.training.lockstep import trainer as trainers
from clients.training.lockstep.elementwise import (
    MaxPoolPart,
    OrderedMaxPoolPart,
    ReluPart,
    ReshapePart,
    channels_last,
)
from clients.training.lockstep.execution_plan import LayerMethod, execution_plan, most_steps
from clients.training.lockstep.layers import MaxPool
from clients.training.lockstep.tracing import chain_of
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
from tests.clients.training.lockstep.test_tracing import IMAGES

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_one_channel_is_channels_last_too() -> None:
    x = torch.arange(12.0).view(1, 1, 3, 4)
    assert torch.equal(channels_last(x), x)
    assert channels_last(x).stride() == (12, 1, 4, 1)
    assert channels_last(x.flatten(1)).shape == (1, 12)


def test_the_most_steps_are_those_of_the_largest_client() -> None:
    assert most_steps([3, 30], STEPS) == 3
    assert most_steps([3, 30], EPOCHS) == 2 * 8
    assert most_steps([3], EPOCHS) == 2


def test_each_layer_uses_the_method_for_its_size() -> None:
    def kinds(name: str, steps: int, *, card_gib: int | None = None) -> list[LayerMethod]:
        model = model_named(name, IMAGES, {"hidden": 512} if name == "leaf_cnn" else {})
        chain = chain_of(model.module(), IMAGES)
        settings = LocalTraining(learning_rate=0.1, batch_size=10, local_steps=steps)
        chosen = execution_plan(chain, [100], settings, card_gib)
        return [
            kind
            for link, kind in zip(chain, chosen.kinds, strict=True)
            if hasattr(link.layer, "weight")
        ]

    assert kinds("softmax", 10) == [LayerMethod.STACKED]
    assert kinds("leaf_cnn", 10) == [LayerMethod.BY_CLIENT] * 2 + [
        LayerMethod.SHARED,
        LayerMethod.STACKED,
    ]
    assert kinds("leaf_cnn", 25)[2] is LayerMethod.SHARED
    assert kinds("leaf_cnn", 26)[2] is LayerMethod.STACKED  # rank 260 is over half of 512
    on_cuda = kinds("leaf_cnn", 10, card_gib=80)
    assert on_cuda == [LayerMethod.STACKED] * 2 + [LayerMethod.SHARED, LayerMethod.STACKED]


def test_a_chunk_on_a_card_is_what_fits_with_the_rows_of_convolutions() -> None:
    def chunk(card_gib: int) -> int:
        return execution_plan(chain, [batch], settings, card_gib).chunk

    batch = 64
    # One convolution 1 to 2, 3 × 3, of 28 × 28 images, and a linear layer: their rows count.
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * 784, 10))
    chain = chain_of(module, IMAGES)
    settings = LocalTraining(learning_rate=0.1, batch_size=batch, local_steps=1)
    convolution = 2 * batch * (784 + 2 * 784) + (2 + 2 * batch * 784) * 16
    linear = 2 * batch * (2 * 784 + 10) + 10 * 1584
    reshape = 2 * batch * (2 * 784 + 2 * 784)
    each = 4 * (convolution + linear + reshape)
    assert chunk(1) == (1 << 30) // 8 // each == 13
    assert chunk(2) == 26
    assert chunk(80) == 32
    settings = LocalTraining(learning_rate=0.1, batch_size=50 * batch, local_steps=1)
    batch *= 50
    assert chunk(1) == 1


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
