"""`sent140_lstm`: the authors' model (LEAF's) of a tweet's sentiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from clients.models.lstm import draw_text_model, stacked_lstm
from clients.models.model_options import require_known, require_tokens, width
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

_HIDDEN = 100
_DENSE = 30


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
        form: of the data.
        options: `hidden`, units of each LSTM layer; `width`, required width of the word vectors.

    Raises:
        ConfigurationError: the inputs are not tokens with vectors of the width, there are more than
            two classes, or an option is wrong.
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
    return Sent140Lstm(form.embedding, width(model, options, "hidden", _HIDDEN))
