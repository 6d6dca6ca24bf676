"""How good a parameter vector is, and the floor below which it has learned nothing.

Samples are evaluated in blocks that always begin at multiples of `BLOCK`, and what the blocks come
to is summed exactly: so the result has the same bytes in whatever process each block is evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from clients.datasets.federated_data import as_stored
from clients.devices import device_named, reproducible
from clients.models.model import load_vector
from clients.training.port import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn

    from clients.datasets.federated_data import Collate, Inputs, Labels, Samples
    from clients.models.model import Model, ParameterVector

BLOCK = 256
"""Samples of one forward pass: few enough that what a large model makes of them fits in memory."""


def evaluate(
    model: Model,
    vector: ParameterVector,
    samples: Samples,
    collate: Collate = as_stored,
    device: str = "cpu",
) -> Evaluation:
    """Return what a parameter vector comes to on some samples.

    Args:
        model: the model.
        vector: its parameters, shape (d,).
        samples: stored inputs and labels, at least one.
        collate: makes the model's inputs of stored rows.
        device: "cpu", "cuda" or "auto".

    Returns:
        Correct answers, and the sum of cross-entropies: not finite where the parameters are not.

    Raises:
        ValueError: no samples, or parameters of another length than the model's.
    """
    if len(samples.y) == 0:
        raise ValueError("nothing to evaluate on")
    where = device_named(device)
    with reproducible(where):
        module = model.module().to(where)
        load_vector(module, torch.tensor(vector))
        return total(evaluate_part(module, collate, *samples, where))


def evaluate_part(
    module: nn.Module, collate: Collate, x: Inputs, y: Labels, device: torch.device
) -> tuple[Evaluation, ...]:
    """Return what a module with its parameters loaded comes to on each block of some samples.

    A set may be cut into parts, if each begins at a multiple of `BLOCK`; `total` of the blocks of
    all parts is the same as without a cut.

    Args:
        module: on the device; it is left in evaluation mode.
        collate: makes its inputs of stored rows.
        x: stored inputs, one row each.
        y: labels, shape (n,).
        device: where the module is; the caller has made it `reproducible`.
    """
    module.eval()
    return tuple(_block(module, collate, x[rows], y[rows], device) for rows in blocks(len(y)))


def blocks(samples: int) -> Iterator[slice]:
    """Yield the blocks of a set of samples: `BLOCK` each, but for a shorter last one.

    Args:
        samples: how many there are.

    Yields:
        The rows of one block.
    """
    for start in range(0, samples, BLOCK):
        yield slice(start, min(start + BLOCK, samples))


def total(found: Iterable[Evaluation]) -> Evaluation:
    """Return what the blocks of a set come to together, the same in whatever order.

    Args:
        found: of each block.
    """
    listed = list(found)
    losses = [one.loss for one in listed]
    # Exact where all are finite; `fsum` refuses to add inf and -inf, which no losses are.
    loss = math.fsum(losses) if all(map(math.isfinite, losses)) else math.nan
    return Evaluation(
        correct=sum(one.correct for one in listed),
        loss=loss,
        samples=sum(one.samples for one in listed),
    )


def majority_rate(y: Labels) -> float:
    """Return the accuracy of always answering with the commonest class.

    Args:
        y: labels, at least one.

    Returns:
        The share of the commonest class, in (0, 1].
    """
    return float(np.bincount(y).max() / len(y))


def _block(
    module: nn.Module, collate: Collate, x: Inputs, y: Labels, device: torch.device
) -> Evaluation:
    with torch.no_grad():
        # Copies: kernels may sum in another order at another alignment of their inputs.
        inputs = torch.tensor(collate(x), device=device)
        targets = torch.tensor(y, device=device)
        logits = module(inputs)
        loss = functional.cross_entropy(logits.double(), targets, reduction="sum")
        return Evaluation(int((logits.argmax(1) == targets).sum()), float(loss), len(y))
