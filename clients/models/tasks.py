"""The tasks: the shape of a model's scores, its training loss, and what is measured of it.

| task | scores | targets | loss | correct |
| --- | --- | --- | --- | --- |
| `classify` | (n, classes) | (n,) | cross-entropy | samples |
| `PER_TOKEN` | (n, length, classes) | (n, length) | the same | tokens |
| `regress` | (n, outputs) | (n, outputs) | squared error | none |

A token whose target is `NO_TARGET` counts nowhere, so that sequences may differ in length.

Calibrated training of `classify` and `token-classify` takes the loss on logits shifted by the
client's own class counts: the logit adjustment of Menon, Jayasumana, Rawat, Jain, Veit, Kumar 2021,
"Long-Tail Learning via Logit Adjustment". The model and its evaluation have no shift.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from clients.datasets.federated_data import LANGUAGE, NO_TARGET, PER_TOKEN, DataForm, Labels, Task
from ledger.protocol.errors import ConfigurationError

_PSEUDO_COUNT = 0.1
"""Keeps the shift of a class without samples finite."""
_LARGEST_EXPONENT = 700.0


class Score(NamedTuple):
    """What is measured of some samples.

    Attributes:
        correct: how many samples or tokens are classified right; None where nothing is.
    """

    correct: int | None
    loss: float
    counted: int


def require_class_labels(task: Task) -> None:
    """Refuse `training.calibrated` for a task without class labels."""
    if task == "regress" or task in LANGUAGE:
        raise ConfigurationError(
            f"training.calibrated = true: the task is {task}, and only classify and "
            f"token-classify have class labels: leave the setting out"
        )


def class_shift(labels: Labels, classes: int) -> NDArray[np.float32]:
    """Return float32(log(n_y + 0.1)) of each class y, shape (classes,).

    Args:
        labels: of all training samples of one client, as it trains on them.
    """
    counts = np.bincount(labels[labels != NO_TARGET], minlength=classes)
    shift: NDArray[np.float32] = np.log(counts + _PSEUDO_COUNT).astype(np.float32)
    return shift


def training_loss(
    task: Task, scores: Tensor, targets: Tensor, shift: Tensor | None = None
) -> Tensor:
    """Return the mean loss of a batch, over its samples or counted tokens.

    Args:
        shift: added to the logits of every sample, shape (classes,); None for none.
    """
    if shift is not None:
        scores = scores + shift
    if task == "regress":
        return functional.mse_loss(scores, targets)
    if task in PER_TOKEN:
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    return functional.cross_entropy(scores, targets)


def score(task: Task, scores: Tensor, targets: Tensor) -> Score:
    """Return what is measured of some samples, its loss summed in float64."""
    if task == "regress":
        error = functional.mse_loss(scores.double(), targets.double(), reduction="none")
        return Score(None, float(error.mean(1).sum()), len(targets))
    if task in PER_TOKEN:
        scores, targets = scores.flatten(0, 1), targets.flatten()
    loss = functional.cross_entropy(scores.double(), targets, reduction="sum")
    counted = int((targets != NO_TARGET).sum()) if task in PER_TOKEN else len(targets)
    return Score(int((scores.argmax(1) == targets).sum()), float(loss), counted)


def perplexity(task: str | None, loss: float | None) -> float | None:
    """Return the perplexity of a mean loss; None if the task has none, or the loss is too large."""
    if task not in LANGUAGE or loss is None or loss > _LARGEST_EXPONENT:
        return None
    return math.exp(loss)


def fits(form: DataForm, rows: int, shape: tuple[int, ...]) -> bool:
    """Return whether scores have the shape of the task.

    A language model may have more tokens than the data: its table of tokens is often rounded up.
    """
    expected = score_shape(form, rows)
    if form.task in LANGUAGE:
        return shape[:-1] == expected[:-1] and len(shape) == 3 and shape[-1] >= expected[-1]
    return shape == expected


def score_shape(form: DataForm, rows: int) -> tuple[int, ...]:
    """Return the shape of the scores of some rows."""
    length = form.input_shape[:1] if form.task in PER_TOKEN else ()
    return (rows, *length, form.classes)
