"""The built-in models: softmax, MLP, CNNs, AlexNet and a text LSTM.

The layers are those of Krizhevsky's second AlexNet ("One weird trick", arXiv 1404.5997: 64, 192,
384, 256, 256 channels and no response normalisation), also torchvision's. Its kernels and strides
are for 224 × 224 images; here every kernel is 3 × 3 and every pool 2 × 2, after the first, second
and fifth convolution, so that 28 × 28 becomes 3 × 3.

There is no dropout: an update has to follow from the client's data and its batch order alone, so
that its owner can repeat it.

`shakespeare_lstm` names the next character, `sent140_lstm` a tweet's sentiment.

Initial weights are drawn here: torch's own follow from a global state that everything else in the
process draws from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm
from clients.models.model import Option, trainable
from ledger.protocol.errors import ConfigurationError

Weights = Callable[[np.random.Generator, str, tuple[int, ...]], NDArray[np.float64]]

LARGEST_WIDTH = 65_536
"""Limit of a layer's width: a typo must not exhaust the memory."""


def require_known(model: str, options: Mapping[str, Option], known: tuple[str, ...] = ()) -> None:
    """Reject unknown options."""
    for name in options:
        if name not in known:
            has = f"has {', '.join(known)}" if known else "has no options"
            raise ConfigurationError(f"model.options.{name} = {options[name]!r}: {model!r} {has}")


def width(options: Mapping[str, Option], name: str, default: int) -> int:
    """Return the width of a layer, 1 .. `LARGEST_WIDTH`, from a model's option or its default."""
    value = options.get(name, default)
    if type(value) is not int or not 1 <= value <= LARGEST_WIDTH:
        raise ConfigurationError(
            f"model.options.{name} = {value!r}: must be a whole number, 1 .. {LARGEST_WIDTH}"
        )
    return value


def require_numbers(model: str, form: DataForm) -> None:
    """Reject tokens where a model needs numbers."""
    if form.input_dtype != "float32":
        raise ConfigurationError(
            f"model.name = {model!r}: needs numbers, and these inputs are tokens"
        )


def require_images(
    model: str, form: DataForm, *, sides: tuple[int, int] | None = None, least: int = 1
) -> None:
    """Reject inputs that are not images, or not of these sides (height, width)."""
    require_numbers(model, form)
    shape = form.input_shape
    if len(shape) != 3 or (sides is not None and shape[1:] != sides):
        size = "height, width" if sides is None else f"{sides[0]}, {sides[1]}"
        raise ConfigurationError(
            f"model.name = {model!r}: needs images (channels, {size}), not shape {shape}"
        )
    if min(shape[1:]) < least:
        raise ConfigurationError(
            f"model.name = {model!r}: needs images of at least {least} x {least}, not shape {shape}"
        )


def require_tokens(model: str, form: DataForm) -> int:
    """Return the number of distinct tokens; reject inputs that are not rows of tokens."""
    if form.input_dtype != "int64" or form.vocabulary is None or len(form.input_shape) != 1:
        raise ConfigurationError(
            f"model.name = {model!r}: needs tokens, not {form.input_dtype} {form.input_shape}"
        )
    return form.vocabulary


def draw_in_turn(module: nn.Module, rng: np.random.Generator, weights: Weights) -> None:
    """Set every trainable tensor in the order of the vector: random weights, zero biases."""
    with torch.no_grad():
        for name, tensor in trainable(module):
            if tensor.dim() == 1:
                tensor.zero_()
            else:
                drawn = weights(rng, name, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))


def he_normal(rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return normal weights of variance 2 / inputs, which keep the scale of ReLU layers."""
    return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))


def glorot_uniform(
    rng: np.random.Generator, _: str, shape: tuple[int, ...], fans: int | None = None
) -> NDArray[np.float64]:
    """Return uniform weights of variance 2 / (inputs + outputs), TensorFlow's default.

    `fans` is inputs + outputs of the layer, if the tensor is only a part of it.
    """
    limit = math.sqrt(6 / (fans or (shape[0] + shape[1]) * math.prod(shape[2:])))
    return rng.uniform(-limit, limit, shape)


class HeNormal(nn.Module):
    """A module whose start are He-normal weights, as layers of ReLU need, and zero biases."""

    def draw_start(self, rng: np.random.Generator) -> None:
        draw_in_turn(self, rng, he_normal)


_INITIAL_SCALE = 0.01


class SoftmaxRegression(nn.Module):
    """Class scores W x + b."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(classes, inputs))
        self.biases = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x.flatten(1), self.weights, self.biases)

    def draw_start(self, rng: np.random.Generator) -> None:
        draw_in_turn(self, rng, lambda rng, _, shape: rng.standard_normal(shape) * _INITIAL_SCALE)


def softmax(form: DataForm, options: Mapping[str, Option]) -> SoftmaxRegression:
    """Return the regression for inputs of this form; it has no options."""
    require_known("softmax", options)
    require_numbers("softmax", form)
    return SoftmaxRegression(math.prod(form.input_shape), form.classes)


_MLP_HIDDEN = 32


class Perceptron(HeNormal):
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
    require_known("mlp", options, ("hidden",))
    require_numbers("mlp", form)
    inputs = math.prod(form.input_shape)
    return Perceptron(inputs, form.classes, width(options, "hidden", _MLP_HIDDEN))


_CNN_CHANNELS = (8, 16)
_CNN_KERNEL = 3
_LARGEST_UNREDUCED_SIDE = 16


class _Layer(nn.Module):
    """Weights and zero biases, one for each output."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(shape))
        self.biases = nn.Parameter(torch.zeros(shape[0]))


class ConvolutionalNetwork(HeNormal):
    """Two 3 × 3 convolutions with ReLU, then one linear layer.

    The second convolution halves the image, and so does the first if a side is longer than 16.
    Strides replace pooling: their gradient is deterministic on CUDA too. The vector has weights
    then biases, layer by layer.

    Args:
        input_shape: shape of one image, (channels, height, width).
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = input_shape
        first, second = _CNN_CHANNELS
        self.stride = 2 if max(sides) > _LARGEST_UNREDUCED_SIDE else 1
        height, width = (math.ceil(math.ceil(side / self.stride) / 2) for side in sides)
        self.convolution1 = _Layer(first, channels, _CNN_KERNEL, _CNN_KERNEL)
        self.convolution2 = _Layer(second, first, _CNN_KERNEL, _CNN_KERNEL)
        self.linear = _Layer(classes, second * height * width)

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.convolution1, self.convolution2, self.linear
        hidden = functional.conv2d(x, first.weights, first.biases, self.stride, padding=1)
        hidden = functional.relu(hidden)
        hidden = functional.conv2d(hidden, second.weights, second.biases, stride=2, padding=1)
        hidden = functional.relu(hidden)
        return functional.linear(hidden.flatten(1), last.weights, last.biases)


def cnn(form: DataForm, options: Mapping[str, Option]) -> ConvolutionalNetwork:
    """Return the network for images of this form; it has no options."""
    require_known("cnn", options)
    require_images("cnn", form)
    return ConvolutionalNetwork(form.input_shape, form.classes)


_LEAF_CHANNELS = (32, 64)
_LEAF_KERNEL = 5
_LEAF_HIDDEN = 2048
_LEAST_SIDE = 4


class LeafCnn(nn.Module):
    """Two 5 × 5 convolutions, each with ReLU and 2 × 2 max-pooling, then two linear layers.

    Args:
        input_shape: shape of one image, (channels, height, width).
        hidden: units of the first linear layer: 2,048 in LEAF, 512 in many later papers.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        first, second = _LEAF_CHANNELS
        self.convolution1 = nn.Conv2d(channels, first, _LEAF_KERNEL, padding=_LEAF_KERNEL // 2)
        self.convolution2 = nn.Conv2d(first, second, _LEAF_KERNEL, padding=_LEAF_KERNEL // 2)
        self.linear1 = nn.Linear(second * (height // 4) * (width // 4), hidden)
        self.linear2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.pool(self.relu(self.convolution1(x)))
        hidden = self.pool(self.relu(self.convolution2(hidden)))
        scores: Tensor = self.linear2(self.relu(self.linear1(hidden.flatten(1))))
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw Glorot-uniform weights and zero biases, as LEAF's TensorFlow layers do."""
        draw_in_turn(self, rng, glorot_uniform)


def leaf_cnn(form: DataForm, options: Mapping[str, Option]) -> LeafCnn:
    """Return the network for images; option `hidden` is the width of the first linear layer."""
    require_known("leaf_cnn", options, ("hidden",))
    require_images("leaf_cnn", form, least=_LEAST_SIDE)
    return LeafCnn(form.input_shape, form.classes, width(options, "hidden", _LEAF_HIDDEN))


_SIDES = (28, 28)
_ALEXNET_CHANNELS = (64, 192, 384, 256, 256)
_POOLED = (0, 1, 4)
_LEFT = 3 * 3
_ALEXNET_HIDDEN = 4096


class AlexNet(HeNormal):
    """Five convolutions with ReLU, three of them max-pooled, then three linear layers."""

    def __init__(self, channels: int, classes: int, hidden: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((channels, *_ALEXNET_CHANNELS))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            if index in _POOLED:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(_ALEXNET_CHANNELS[-1] * _LEFT, hidden),
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
    require_known("alexnet", options, ("hidden",))
    require_images("alexnet", form, sides=_SIDES)
    hidden = width(options, "hidden", _ALEXNET_HIDDEN)
    return AlexNet(form.input_shape[0], form.classes, hidden)


_FORGET_BIAS = 1.0
_EMBEDDING = 8
_SHAKESPEARE_HIDDEN = 256
_SENT140_HIDDEN = 100
_DENSE = 30


def stacked_lstm(inputs: int, hidden: int) -> nn.LSTM:
    """Return two layers of TensorFlow's BasicLSTMCell: batch first, no dropout.

    `nn.LSTM` has two biases per gate. The second one is frozen here and holds the cell's constant:
    1 in the forget gate, 0 elsewhere. It is not in the vector, and the number of parameters is the
    authors'.
    """
    lstm = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True)
    for layer in range(lstm.num_layers):
        constant: nn.Parameter = getattr(lstm, f"bias_hh_l{layer}")
        constant.requires_grad_(False)
        with torch.no_grad():
            constant.zero_()
            constant[hidden : 2 * hidden] = _FORGET_BIAS  # gates are input, forget, cell, output
    return lstm


def draw_text_model(module: nn.Module, lstm: nn.LSTM, rng: np.random.Generator) -> None:
    """Draw Glorot-uniform weights and zero biases, as the authors' TensorFlow layers do."""

    def weights(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        if not name.startswith("lstm."):
            return glorot_uniform(rng, name, shape)
        # One kernel in TensorFlow, from (input, state) to four gates; two tensors here.
        inputs = lstm.input_size if name.endswith("_l0") else lstm.hidden_size
        return glorot_uniform(rng, name, shape, fans=inputs + 5 * lstm.hidden_size)

    draw_in_turn(module, rng, weights)


class ShakespeareLstm(nn.Module):
    """A trained vector of 8 numbers per character, two LSTM layers, one linear layer.

    Args:
        hidden: units of each LSTM layer: 256 in the authors' code, 100 in the paper.
    """

    def __init__(self, vocabulary: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, _EMBEDDING)
        self.lstm = stacked_lstm(_EMBEDDING, hidden)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of "negative" and "positive" of words x, (n, length), shape (n, 2).

        They are 0 and the logit, so the cross-entropy is that of the logit's sigmoid. The last step
        is read even for short tweets, whose padding is at the end, as in the authors' code.
        """
        states, _ = self.lstm(self.embedding(x))
        scores: Tensor = self.linear(states[:, -1])
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        draw_text_model(self, self.lstm, rng)


def shakespeare_lstm(form: DataForm, options: Mapping[str, Option]) -> ShakespeareLstm:
    """Return the model for rows of characters; option `hidden` is the width of each LSTM layer."""
    require_known("shakespeare_lstm", options, ("hidden",))
    vocabulary = require_tokens("shakespeare_lstm", form)
    hidden = width(options, "hidden", _SHAKESPEARE_HIDDEN)
    return ShakespeareLstm(vocabulary, form.classes, hidden)


class Sent140Lstm(nn.Module):
    """Fixed word vectors, two LSTM layers, a linear layer of 30 without activation, one logit.

    The word vectors are not in the vector that is trained and sent.

    Args:
        embedding: fixed vector of each word, shape (vocabulary, width).
        hidden: units of each LSTM layer: 100 in the authors' code, 256 in the paper.
    """

    def __init__(self, embedding: NDArray[np.float32], hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.tensor(embedding), freeze=True)
        self.lstm = stacked_lstm(embedding.shape[1], hidden)
        self.linear1 = nn.Linear(hidden, _DENSE)
        self.linear2 = nn.Linear(_DENSE, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of "negative" and "positive", shape (n, 2).

        They are 0 and the logit, so the cross-entropy is that of the logit's sigmoid. The last step
        is read even for short tweets, whose padding is at the end, as in the authors' code.

        Args:
            x: words, shape (n, length).
        """
        states, _ = self.lstm(self.embedding(x))
        logit = self.linear2(self.linear1(states[:, -1]))
        return torch.cat([torch.zeros_like(logit), logit], dim=1)

    def draw_start(self, rng: np.random.Generator) -> None:
        draw_text_model(self, self.lstm, rng)


def sent140_lstm(form: DataForm, options: Mapping[str, Option]) -> Sent140Lstm:
    """Return the model for rows of words; option `width` is the required width of their vectors."""
    model = "sent140_lstm"
    require_known(model, options, ("hidden", "width"))
    require_tokens(model, form)
    if form.embedding is None:
        raise ConfigurationError(
            f"model.name = {model!r}: needs a vector of each word; these data have none"
        )
    if form.classes != 2:
        raise ConfigurationError(
            f"model.name = {model!r}: distinguishes two classes, not {form.classes}"
        )
    actual = form.embedding.shape[1]
    required = width(options, "width", actual)
    if actual != required:
        raise ConfigurationError(
            f"model.options.width = {required}: the word vectors of these data have {actual}"
        )
    return Sent140Lstm(form.embedding, width(options, "hidden", _SENT140_HIDDEN))
