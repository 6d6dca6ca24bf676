"""The lockstep path: which chains of layers it reads, and the same steps in any company."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm, as_stored, frozen_samples
from clients.models.model import Model, model_of
from clients.models.registry import MODELS, model_named
from clients.training.engine_factory import open_engine
from clients.training.lockstep import network, plan
from clients.training.lockstep import trainer as trainers
from clients.training.lockstep.network import (
    MaxPoolPart,
    OrderedMaxPoolPart,
    ReluPart,
    ReshapePart,
    channels_last,
)
from clients.training.lockstep.plan import (
    Convolution,
    Linear,
    MaxPool,
    Relu,
    Reshape,
    ShapedLayer,
    UnknownLayerError,
    chain_of,
    pooled_first,
)
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.port import LocalTraining, TrainingJob, TrainingPath
from clients.training.updates import DownloadWriter
from ledger.protocol.errors import ConfigurationError
from tests.clients.training.lockstep.support import (
    CALIBRATED,
    EPOCHS,
    FORM,
    JOBS,
    SIZES,
    STEPS,
    TRAIN,
    both,
    error,
    exact_update,
    samples,
    sequential,
    updates,
)
from tests.clients.training.made import DATA, SETTINGS, work_of
from tests.clients.training.made import JOBS as MADE_JOBS

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
        (lambda m, x: m.linear(x.flatten(1)) + m.linear(x.flatten(1)), "than the previous layer"),
        (lambda m, x: m.linear(x.flatten(1)), "is not trained by exactly one layer"),
        (lambda m, x: m.linear(x.flatten(1)[:, :64]), "getitem"),
        (lambda m, x: m.linear(x.transpose(2, 3).flatten(1)), "transpose"),
        (lambda m, x: m.linear(x.flatten(1)) if x.sum() > 0 else x, "cannot be traced"),
        (lambda m, x: m.linear(x), "cannot be followed"),
        (lambda m, x: m.linear(x.reshape(-1, 8, 8).flatten(1)).flatten(0), "keep samples apart"),
        (lambda _, x: functional.max_pool2d(x, 2, ceil_mode=True), "unsupported kind of pooling"),
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
        (nn.MaxPool2d(2, dilation=2), "unsupported kind of pooling"),
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
    expected = updates(LockstepTrainer(work_of(*arguments)), start, JOBS)
    recorder = WorksMeanwhile()
    monkeypatch.setattr(trainers, "recorder_for", lambda _: recorder)
    recorded = LockstepTrainer(work_of(*arguments))
    assert updates(recorded, start, JOBS).tobytes() == expected.tobytes()
    chunks = -(-len(SIZES) // recorded.chunk)
    assert recorder.replays == 3 * chunks


def test_the_path_of_a_card_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but CUDA itself: the plan, the methods, recorded steps and downloads."""
    model = model_named("cnn", FORM)
    start = model.initial(np.random.default_rng(5))
    for settings in (STEPS, EPOCHS):
        arguments = (model, TRAIN, as_stored, settings, "cpu")
        expected = updates(PlainTrainer(work_of(*arguments)), start, JOBS)
        with monkeypatch.context() as patched:
            patched.setattr(trainers, "card_gib", lambda _: 16)
            patched.setattr(trainers, "recorder_for", lambda _: WorksMeanwhile())
            patched.setattr(trainers, "update_writer", DownloadWriter)
            patched.setattr(network, "MaxPoolPart", OrderedMaxPoolPart)
            trainer = LockstepTrainer(work_of(*arguments))
        assert trainer.chunk == 32
        found = updates(trainer, start, JOBS)
        assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < 2e-5


def convolutional(hidden: int) -> Model:
    return sequential(
        nn.Conv2d(1, 4, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=1, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(24, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10, bias=False),
    )


TRAINED_MODELS = {
    "softmax": model_named("softmax", FORM),
    "cnn": model_named("cnn", FORM),
    "convolutional": convolutional(40),
    "without biases": sequential(
        nn.Conv2d(1, 3, (3, 2), stride=2, dilation=(1, 2), bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 30, bias=False),
        nn.ReLU(),
        nn.Linear(30, 10),
    ),
}


def seen_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SMALL", 0)
    monkeypatch.setattr(plan, "_LARGE_MATRIX", 500)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        seen_as_large(monkeypatch)
    return str(request.param)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(
    "settings", [STEPS, EPOCHS, CALIBRATED], ids=["steps", "epochs", "calibrated"]
)
@pytest.mark.parametrize("name", TRAINED_MODELS)
def test_an_update_equals_plain_path_and_float64(name: str, settings: LocalTraining) -> None:
    model = TRAINED_MODELS[name]
    lockstep, plain = both(model, settings)
    start = model.initial(np.random.default_rng(5))
    # Of all in lockstep, those of 30, 3, 7, 1 and 5 samples: more and fewer than a batch, and not
    # all clients by the two paths that take them one by one.
    some = [2, 3, 5, 6, 9]
    compared = [JOBS[client] for client in some]
    found, expected = updates(lockstep, start, JOBS)[some], updates(plain, start, compared)
    for job, one, other in zip(compared, found, expected, strict=True):
        exact = exact_update(model, start, job, settings)
        # Both round to float32 some hundred times; none of these numbers is near a kink.
        assert error(one, other) < 2e-5
        assert error(one, exact) < 1e-5


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(
    "settings", [STEPS, EPOCHS, CALIBRATED], ids=["steps", "epochs", "calibrated"]
)
@pytest.mark.parametrize("name", ["cnn", "convolutional"])
def test_the_bytes_do_not_depend_on_the_chunk(name: str, settings: LocalTraining) -> None:
    model = TRAINED_MODELS[name]
    trainer, _ = both(model, settings)
    start = model.initial(np.random.default_rng(5))
    full = trainer.chunk
    assert 1 < full < len(JOBS)
    expected = updates(trainer, start, JOBS)
    for chunk in (1, 5):
        trainer.chunk = chunk
        assert updates(trainer, start, JOBS).tobytes() == expected.tobytes()
    trainer.chunk = full
    assert updates(trainer, start, JOBS[::-1])[::-1].tobytes() == expected.tobytes()
    some = [4, 2, 11]
    odd = updates(trainer, start, [JOBS[client] for client in some])
    assert odd.tobytes() == expected[some].tobytes()


def test_a_large_matrix_gives_the_same_bytes_in_any_chunk() -> None:
    # The sizes of a real model: here a product of fewer rows does sum in another order.
    form = DataForm((1100,), 10)
    train = [samples(12, seed, form) for seed in range(12)]
    model = model_of(_wide, form)
    settings = LocalTraining(learning_rate=0.1, batch_size=10, local_steps=2)
    trainer = LockstepTrainer(work_of(model, train, as_stored, settings, "cpu"))
    assert trainer.chunk == 10
    start = model.initial(np.random.default_rng(0))
    expected = updates(trainer, start, JOBS)
    for chunk, last in ((1, 5), (2, 6), (5, 9)):
        trainer.chunk = chunk
        assert updates(trainer, start, JOBS[3:last]).tobytes() == expected[3:last].tobytes()
    plainly = PlainTrainer(work_of(model, train, as_stored, settings, "cpu"))
    plain = updates(plainly, start, JOBS[:5])
    # A ReLU whose input is nearly 0 may open on one path alone.
    assert np.median([error(a, b) for a, b in zip(expected[:5], plain, strict=True)]) < 1e-5


def _wide(form: DataForm, _options: object) -> nn.Module:
    return nn.Sequential(
        nn.Linear(form.input_shape[0], 2050), nn.ReLU(), nn.Linear(2050, form.classes)
    )


def test_rows_may_lie_anywhere_and_the_start_is_left_alone() -> None:
    model = TRAINED_MODELS["softmax"]
    trainer, _ = both(model, STEPS)
    start = model.initial(np.random.default_rng(5))
    expected, kept = updates(trainer, start, JOBS), start.copy()
    start.setflags(write=False)
    memory = np.full((len(JOBS), len(start) + 3), 7, dtype=np.float32)
    trainer.train(start, JOBS, [row[1:-2] for row in memory])
    assert np.array_equal(memory[:, 1:-2], expected)
    assert (memory[:, 0] == 7).all()
    assert (memory[:, -2:] == 7).all()
    assert np.array_equal(start, kept)


def test_a_client_that_diverges_changes_nobody_else() -> None:
    model = TRAINED_MODELS["convolutional"]
    wild = frozen_samples(np.full((9, 1, 8, 8), 1e30, dtype=np.float32), TRAIN[0].y)
    one, _ = both(model, EPOCHS)
    other, _ = both(model, EPOCHS, (wild, *TRAIN[1:]))
    start = model.initial(np.random.default_rng(5))
    calm, mixed = updates(one, start, JOBS), updates(other, start, JOBS)
    assert not np.isfinite(mixed[0]).all()
    assert np.isfinite(calm).all()
    assert calm[1:].tobytes() == mixed[1:].tobytes()


def test_many_steps_are_staged_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TRAINED_MODELS["softmax"]
    start = model.initial(np.random.default_rng(5))
    at_once = updates(both(model, EPOCHS)[0], start, JOBS)
    monkeypatch.setattr("clients.training.lockstep.trainer._STAGED_BYTES", 40_000)
    assert updates(both(model, EPOCHS)[0], start, JOBS).tobytes() == at_once.tobytes()


def test_unknown_layer_of_a_module_is_named_in_the_refusal() -> None:
    model = sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    with pytest.raises(ConfigurationError, match="'lockstep': 2 is a Tanh"):
        LockstepTrainer(work_of(model, TRAIN, as_stored, STEPS, "cpu"))


CNN = model_named("cnn", FORM)
START = CNN.initial(np.random.default_rng(5))
BOTH = pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["steps", "epochs"])


def with_losses(
    trainer: LockstepTrainer | PlainTrainer, settings: LocalTraining, jobs: Sequence[TrainingJob]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    rows = np.zeros((len(jobs), len(START)), dtype=np.float32)
    sizes = [settings.steps(SIZES[job.client]) for job in jobs]
    losses = [np.full(size, np.nan, np.float32) for size in sizes]
    trainer.train(START, jobs, list(rows), losses)
    return rows, losses


@BOTH
def test_losses_change_no_update_and_agree_between_paths(settings: LocalTraining) -> None:
    found = []
    for trainer in both(CNN, settings):
        before = updates(trainer, START, JOBS)
        rows, losses = with_losses(trainer, settings, JOBS)
        assert rows.tobytes() == before.tobytes() == updates(trainer, START, JOBS).tobytes()
        found.append(np.concatenate(losses))
    lockstep, plain = found
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(lockstep, plain, rtol=1e-4)
    # The first loss of ten classes, before anything is learnt, is near log 10.
    assert abs(plain[0] - np.log(10)) < 1


@BOTH
def test_losses_do_not_depend_on_the_chunk(settings: LocalTraining) -> None:
    trainer, _ = both(CNN, settings)
    _, together = with_losses(trainer, settings, JOBS)
    for job, losses in zip(JOBS, together, strict=True):
        _, (alone,) = with_losses(trainer, settings, [job])
        assert alone.tobytes() == losses.tobytes()


@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_an_engine_gives_losses_where_they_are_asked_for(path: TrainingPath) -> None:
    model = model_named("cnn", DATA.form)
    start = model.initial(np.random.default_rng(5))
    found = []
    for asked in (True, False):
        with open_engine(
            model, DATA, SETTINGS,
            device="cpu", workers=1, path=path, sets={}, rows=1, records_losses=asked,
        ) as engine:  # fmt: skip
            (update,) = engine.train(start, MADE_JOBS[:1])
            found.append((bytes(update.payload.data), update.losses))
    (with_, losses), (without, none) = found
    assert with_ == without
    assert losses is not None
    assert len(losses) == 4 * SETTINGS.steps(len(DATA.train[0].y))
    assert none is None


def test_an_update_depends_on_no_host_of_its_client() -> None:
    # Client 3 has fewer samples than a batch: the rows that fill it are those of the largest.
    alone = [part if client == 3 else TRAIN[0]._replace(x=TRAIN[0].x[:0], y=TRAIN[0].y[:0])
             for client, part in enumerate(TRAIN)]  # fmt: skip
    arguments = (CNN, alone, lambda rows: rows, EPOCHS, "cpu")
    hosted = LockstepTrainer(work_of(*arguments, SIZES))
    everybody, _ = both(CNN, EPOCHS)
    expected = updates(everybody, START, [JOBS[3]])
    assert updates(hosted, START, [JOBS[3]]).tobytes() == expected.tobytes()
    assert LockstepTrainer(work_of(*arguments)).chunk == hosted.chunk
