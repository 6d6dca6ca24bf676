"""The built-in models: softmax, MLP, CNNs, AlexNet and a text LSTM.

AlexNet is Krizhevsky's second ("One weird trick", arXiv 1404.5997), also torchvision's, with 3 × 3
kernels and 2 × 2 pools, so that 28 × 28 becomes 3 × 3. There is no dropout, so that an owner can
repeat its update. `shakespeare_lstm` names the next character, `sent140_lstm` a tweet's sentiment.

Initial weights are drawn here: torch's own follow from a global state of the whole process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.model import Option, model_error, trainable
from ledger.protocol.errors import ConfigurationError

Weights = NDArray[np.float64]

LARGEST_WIDTH = 65_536  # limit of a layer's width: a typo must not exhaust the memory


def widths(model: str, options: Mapping[str, Option], **usual: int) -> list[int]:
    """Return the width of each layer by an option or its usual one; refuse other options."""
    for name, value in options.items():
        if name not in usual:
            has = f"has {', '.join(usual)}" if usual else "has no options"
            raise ConfigurationError(f"model.options.{name} = {value!r}: {model!r} {has}")
    chosen: list[int] = []
    for name, default in usual.items():
        value = options.get(name, default)
        if type(value) is not int or not 1 <= value <= LARGEST_WIDTH:
            raise ConfigurationError(
                f"model.options.{name} = {value!r}: must be a whole number, 1 .. {LARGEST_WIDTH}"
            )
        chosen.append(value)
    return chosen


def require_numbers(model: str, form: DataForm) -> None:
    """Reject tokens where a model needs numbers."""
    if form.input_dtype != "float32":
        raise model_error(model, "needs numbers, and these inputs are tokens")


def require_images(
    model: str, form: DataForm, *, sides: tuple[int, int] | None = None, least: int = 1
) -> None:
    """Reject inputs that are not images, or not of these sides (height, width)."""
    require_numbers(model, form)
    shape = form.input_shape
    if len(shape) != 3 or (sides is not None and shape[1:] != sides):
        size = "height, width" if sides is None else f"{sides[0]}, {sides[1]}"
        raise model_error(model, f"needs images (channels, {size}), not shape {shape}")
    if min(shape[1:]) < least:
        raise model_error(model, f"needs images of at least {least} x {least}, not shape {shape}")


def require_tokens(model: str, form: DataForm) -> int:
    """Return the number of distinct tokens; reject inputs that are not rows of tokens."""
    if form.input_dtype != "int64" or form.vocabulary is None or len(form.input_shape) != 1:
        raise model_error(model, f"needs tokens, not {form.input_dtype} {form.input_shape}")
    return form.vocabulary


class BuiltIn(nn.Module):
    """A module that draws its start: random weights, zero biases."""

    def draw_start(self, rng: np.random.Generator) -> None:
        """Set every trainable tensor, in the order of the vector."""
        with torch.no_grad():
            for name, tensor in trainable(self):
                if tensor.dim() == 1:
                    tensor.zero_()
                else:
                    weights = self.drawn(rng, name, tuple(tensor.shape))
                    tensor.copy_(torch.from_numpy(weights.astype(np.float32)))

    def drawn(self, rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> Weights:
        """Return He-normal weights, of variance 2 / inputs, which keep the scale of ReLU layers."""
        return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))


def glorot_uniform(
    rng: np.random.Generator, shape: tuple[int, ...], fans: int | None = None
) -> Weights:
    """Return uniform weights of variance 2 / fans, by default inputs + outputs, as TensorFlow."""
    limit = math.sqrt(6 / (fans or (shape[0] + shape[1]) * math.prod(shape[2:])))
    return rng.uniform(-limit, limit, shape)


class SoftmaxRegression(BuiltIn):
    """Class scores W x + b."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(classes, inputs))
        self.biases = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x.flatten(1), self.weights, self.biases)

    def drawn(self, rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> Weights:
        return rng.standard_normal(shape) * 0.01


def softmax(form: DataForm, options: Mapping[str, Option]) -> SoftmaxRegression:
    """Return the regression for inputs of this form; it has no options."""
    widths("softmax", options)
    require_numbers("softmax", form)
    return SoftmaxRegression(math.prod(form.input_shape), form.classes)


class Perceptron(BuiltIn):
    """A linear layer with ReLU, then another linear layer."""

    def __init__(self, inputs: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.linear2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear2(self.relu(self.linear1(x.flatten(1))))
        return scores


def mlp(form: DataForm, options: Mapping[str, Option]) -> Perceptron:
    """Return the perceptron for numbers; option `hidden` is the width of its hidden layer."""
    (hidden,) = widths("mlp", options, hidden=32)
    require_numbers("mlp", form)
    return Perceptron(math.prod(form.input_shape), form.classes, hidden)


class _Layer(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(shape))
        self.biases = nn.Parameter(torch.zeros(shape[0]))


class ConvolutionalNetwork(BuiltIn):
    """Two 3 × 3 convolutions with ReLU, then one linear layer, for (channels, height, width).

    The second convolution halves the image, and so does the first if a side is longer than 16.
    Strides replace pooling: their gradient is deterministic on CUDA too.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = input_shape
        self.stride = 2 if max(sides) > 16 else 1
        height, width = (math.ceil(math.ceil(side / self.stride) / 2) for side in sides)
        self.convolution1 = _Layer(8, channels, 3, 3)
        self.convolution2 = _Layer(16, 8, 3, 3)
        self.linear = _Layer(classes, 16 * height * width)

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.convolution1, self.convolution2, self.linear
        hidden = functional.conv2d(x, first.weights, first.biases, self.stride, padding=1)
        hidden = functional.relu(hidden)
        hidden = functional.conv2d(hidden, second.weights, second.biases, stride=2, padding=1)
        hidden = functional.relu(hidden)
        return functional.linear(hidden.flatten(1), last.weights, last.biases)


def cnn(form: DataForm, options: Mapping[str, Option]) -> ConvolutionalNetwork:
    """Return the network for images of this form; it has no options."""
    widths("cnn", options)
    require_images("cnn", form)
    return ConvolutionalNetwork(form.input_shape, form.classes)


class LeafCnn(BuiltIn):
    """Two 5 × 5 convolutions, each with ReLU and 2 × 2 max-pooling, then two linear layers."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.convolution1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.convolution2 = nn.Conv2d(32, 64, 5, padding=2)
        self.linear1 = nn.Linear(64 * (height // 4) * (width // 4), hidden)
        self.linear2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.pool(self.relu(self.convolution1(x)))
        hidden = self.pool(self.relu(self.convolution2(hidden)))
        scores: Tensor = self.linear2(self.relu(self.linear1(hidden.flatten(1))))
        return scores

    def drawn(self, rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> Weights:
        return glorot_uniform(rng, shape)  # as LEAF's TensorFlow layers


def leaf_cnn(form: DataForm, options: Mapping[str, Option]) -> LeafCnn:
    """Return the network for images; option `hidden` is the width of the first linear layer."""
    (hidden,) = widths("leaf_cnn", options, hidden=2048)
    require_images("leaf_cnn", form, least=4)
    return LeafCnn(form.input_shape, form.classes, hidden)


_ALEXNET_CHANNELS = (64, 192, 384, 256, 256)


class AlexNet(BuiltIn):
    """Five convolutions with ReLU, three of them max-pooled, then three linear layers."""

    def __init__(self, channels: int, classes: int, hidden: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((channels, *_ALEXNET_CHANNELS))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            if index in {0, 1, 4}:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(_ALEXNET_CHANNELS[-1] * 3 * 3, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(x).flatten(1))
        return scores


def alexnet(form: DataForm, options: Mapping[str, Option]) -> AlexNet:
    """Return the network for 28 × 28 images; option `hidden` is the width of two linear layers."""
    (hidden,) = widths("alexnet", options, hidden=4096)
    require_images("alexnet", form, sides=(28, 28))
    return AlexNet(form.input_shape[0], form.classes, hidden)


class TextModel(BuiltIn):
    """Vectors of words or characters, and two LSTM layers: TensorFlow's BasicLSTMCell.

    `nn.LSTM` has two biases per gate. The second one is frozen here and holds the cell's constant:
    1 in the forget gate, 0 elsewhere. So the number of parameters is the authors'.
    """

    def __init__(self, embedding: nn.Embedding, hidden: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.lstm = nn.LSTM(embedding.embedding_dim, hidden, num_layers=2, batch_first=True)
        for layer in range(self.lstm.num_layers):
            constant: nn.Parameter = getattr(self.lstm, f"bias_hh_l{layer}")
            constant.requires_grad_(False)
            with torch.no_grad():
                constant.zero_()
                constant[hidden : 2 * hidden] = 1.0  # gates are input, forget, cell, output

    def last(self, x: Tensor) -> Tensor:
        """Return the states after the last step, of padding too, as in the authors' code."""
        states: Tensor = self.lstm(self.embedding(x))[0]
        return states[:, -1]

    def drawn(self, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Weights:
        """Return Glorot-uniform weights, as the authors' TensorFlow layers draw them."""
        if not name.startswith("lstm."):
            return glorot_uniform(rng, shape)
        # One kernel in TensorFlow, from (input, state) to four gates; two tensors here.
        inputs = self.lstm.input_size if name.endswith("_l0") else self.lstm.hidden_size
        return glorot_uniform(rng, shape, fans=inputs + 5 * self.lstm.hidden_size)


class ShakespeareLstm(TextModel):
    """A trained vector of 8 numbers per character, two LSTM layers, one linear layer."""

    def __init__(self, vocabulary: int, classes: int, hidden: int) -> None:
        super().__init__(nn.Embedding(vocabulary, 8), hidden)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.last(x))
        return scores


def shakespeare_lstm(form: DataForm, options: Mapping[str, Option]) -> ShakespeareLstm:
    """Return the model for rows of characters; option `hidden` is the width of each LSTM layer."""
    (hidden,) = widths("shakespeare_lstm", options, hidden=256)
    return ShakespeareLstm(require_tokens("shakespeare_lstm", form), form.classes, hidden)


class Sent140Lstm(TextModel):
    """Fixed word vectors, two LSTM layers, a linear layer of 30 without activation, one logit."""

    def __init__(self, embedding: NDArray[np.float32], hidden: int) -> None:
        super().__init__(nn.Embedding.from_pretrained(torch.tensor(embedding), freeze=True), hidden)
        self.linear1 = nn.Linear(hidden, 30)
        self.linear2 = nn.Linear(30, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores 0 and the logit, shape (n, 2), of "negative" and "positive" for words x."""
        logit = self.linear2(self.linear1(self.last(x)))
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


def sent140_lstm(form: DataForm, options: Mapping[str, Option]) -> Sent140Lstm:
    """Return the model for rows of words; option `width` is the required width of their vectors."""
    model = "sent140_lstm"
    actual = 1 if form.embedding is None else form.embedding.shape[1]
    hidden, required = widths(model, options, hidden=100, width=actual)
    require_tokens(model, form)
    if form.embedding is None:
        raise model_error(model, "needs a vector of each word; these data have none")
    if form.classes != 2:
        raise model_error(model, f"distinguishes two classes, not {form.classes}")
    if actual != required:
        raise ConfigurationError(
            f"model.options.width = {required}: the word vectors of these data have {actual}"
        )
    return Sent140Lstm(form.embedding, hidden)
