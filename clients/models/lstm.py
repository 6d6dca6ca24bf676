"""The LSTM of both text models: the authors', with one bias per gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from clients.models.initial_weights import draw_in_turn, glorot_uniform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FORGET_BIAS = 1.0


def stacked_lstm(inputs: int, hidden: int) -> nn.LSTM:
    """Return two layers of TensorFlow's BasicLSTMCell: batch first, no dropout.

    `nn.LSTM` has two biases per gate. The second one is frozen here and holds the cell's constant:
    1 in the forget gate, 0 elsewhere. It is not in the vector, and the number of parameters is the
    authors'.

    Args:
        inputs: width of one step's input.
        hidden: units of each layer.
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
        module: its parameters are overwritten.
        lstm: its `stacked_lstm`, under the name `lstm`.
        rng: the initial model's own stream.
    """

    def weights(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        if not name.startswith("lstm."):
            return glorot_uniform(rng, name, shape)
        # One kernel in TensorFlow, from (input, state) to four gates; two tensors here.
        inputs = lstm.input_size if name.endswith("_l0") else lstm.hidden_size
        return glorot_uniform(rng, name, shape, fans=inputs + 5 * lstm.hidden_size)

    draw_in_turn(module, rng, weights)
