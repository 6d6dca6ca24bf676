"""Models of `benchmarks.payloads`, apart from it: a run binds the bytes of its model's file."""

from __future__ import annotations

import torch
from torch import nn


class Perceptron(nn.Module):
    """Two layers on an image of 8 by 8 pixels."""

    def __init__(self, units: int = 64) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(64, units), nn.Linear(units, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score of each class, shape (samples, 10)."""
        scores: torch.Tensor = self.out(torch.relu(self.hidden(x.flatten(1))))
        return scores


class RowReader(nn.Module):
    """An LSTM that reads an image of 8 by 8 pixels row by row."""

    def __init__(self, units: int = 32) -> None:
        super().__init__()
        self.reader, self.out = nn.LSTM(8, units, batch_first=True), nn.Linear(units, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score of each class, shape (samples, 10)."""
        states, _ = self.reader(x.reshape(len(x), 8, 8))
        scores: torch.Tensor = self.out(states[:, -1])
        return scores
