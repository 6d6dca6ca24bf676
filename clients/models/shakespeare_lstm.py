"""`shakespeare_lstm`: the authors' model (LEAF's) of the next character."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from clients.models.lstm import draw_text_model, stacked_lstm
from clients.models.model_options import require_known, require_tokens, width

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import Tensor

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

_EMBEDDING = 8
_HIDDEN = 256


class ShakespeareLstm(nn.Module):
    """A trained vector of 8 numbers per character, two LSTM layers, one linear layer.

    Args:
        vocabulary: number of distinct characters.
        classes: number of possible next characters.
        hidden: units of each LSTM layer: 256 in the authors' code, 100 in the paper.
    """

    def __init__(self, vocabulary: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, _EMBEDDING)
        self.lstm = stacked_lstm(_EMBEDDING, hidden)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return a score of each possible next character, shape (n, classes).

        Args:
            x: characters, shape (n, length).
        """
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
    hidden = width("shakespeare_lstm", options, "hidden", _HIDDEN)
    return ShakespeareLstm(vocabulary, form.classes, hidden)
