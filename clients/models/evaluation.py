"""How good a parameter vector is, and the floor below which it has learned nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as nn

from clients.devices import device_named, reproducible

if TYPE_CHECKING:
    from clients.datasets.federated import Inputs, Labels
    from clients.models.model import Model, ParameterVector

_BLOCK = 2048


def evaluate(
    model: Model, vector: ParameterVector, x: Inputs, y: Labels, device: str = "cpu"
) -> tuple[float, float]:
    """Return the share of inputs classified right, and the mean cross-entropy.

    Args:
        model: the model.
        vector: its parameters, shape (d,).
        x: inputs, shape (n, *input_shape), at least one.
        y: labels, shape (n,).
        device: "cpu", "cuda" or "auto".

    Returns:
        Accuracy in [0, 1], and loss: not finite where the parameters are not.

    Raises:
        ValueError: no inputs, or parameters of another length than the model's.
    """
    if len(y) == 0:
        raise ValueError("nothing to evaluate on")
    if vector.shape != (model.dimension,):
        raise ValueError(f"{vector.shape} parameters for a model of {model.dimension}")
    where = device_named(device)
    correct, loss = 0, 0.0
    with reproducible(where), torch.no_grad():
        parameters = torch.tensor(vector, device=where)
        for start in range(0, len(y), _BLOCK):
            targets = torch.tensor(y[start : start + _BLOCK], device=where)
            logits = model.logits(parameters, torch.tensor(x[start : start + _BLOCK], device=where))
            correct += int((logits.argmax(1) == targets).sum())
            loss += float(nn.cross_entropy(logits.double(), targets, reduction="sum"))
    return correct / len(y), loss / len(y)


def majority_rate(y: Labels) -> float:
    """Return the accuracy of always answering with the commonest class.

    Args:
        y: labels, at least one.

    Returns:
        The share of the commonest class, in (0, 1].
    """
    return float(np.bincount(y).max() / len(y))
