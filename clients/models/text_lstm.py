"""The authors' two text models (LEAF's), of LSTMs with one bias per gate.

`shakespeare_lstm` names the next character, `sent140_lstm` a tweet's sentiment.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn, glorot_uniform
from clients.models.model import Option
from clients.models.model_options import require_known, require_tokens, width
from ledger.protocol.errors import ConfigurationError

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
    """Draw Glorot-uniform weights and zero biases, as the authors' TensorFlow layers do.

    Args:
        rng: the initial model's own stream.
    """

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
        """Return the scores of next characters, (n, classes), after characters x, (n, length)."""
        states, _ = self.lstm(self.embedding(x))
        scores: Tensor = self.linear(states[:, -1])
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw Glorot-uniform weights and zero biases."""
        draw_text_model(self, self.lstm, rng)


def shakespeare_lstm(form: DataForm, options: Mapping[str, Option]) -> ShakespeareLstm:
    """Return the model for rows of characters; option `hidden` is the width of each LSTM layer."""
    require_known("shakespeare_lstm", options, ("hidden",))
    vocabulary = require_tokens("shakespeare_lstm", form)
    hidden = width("shakespeare_lstm", options, "hidden", _SHAKESPEARE_HIDDEN)
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
        """Draw Glorot-uniform weights and zero biases."""
        draw_text_model(self, self.lstm, rng)


def sent140_lstm(form: DataForm, options: Mapping[str, Option]) -> Sent140Lstm:
    """Return the model for rows of words with vectors.

    Args:
        options: `hidden`, units of each LSTM layer; `width`, required width of the word vectors.
    """
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
    required = width(model, options, "width", actual)
    if actual != required:
        raise ConfigurationError(
            f"model.options.width = {required}: the word vectors of these data have {actual} "
            f"numbers"
        )
    return Sent140Lstm(form.embedding, width(model, options, "hidden", _SENT140_HIDDEN))
