"""Evaluation of a parameter vector in blocks that any process may take, and their totals.

Blocks begin at multiples of `BLOCK`, and are summed exactly: the result has the same bytes
whichever process evaluates each block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import nn

from clients.datasets.federated_data import (
    NO_TARGET,
    PER_TOKEN,
    Collate,
    DataForm,
    Labels,
    Samples,
    as_stored,
)
from clients.devices import device_named, reproducible
from clients.models.model import Model, ParameterVector, load_vector, score
from clients.training.port import Evaluation

if TYPE_CHECKING:
    from clients.training.workload import Workload

Batch = tuple[torch.Tensor, torch.Tensor]
"""Collated inputs and their targets, one row each."""

BLOCK = 256
"""Samples of one forward pass: few enough for a large model's activations to fit into memory."""

MOST_SCORES = 2**24
"""Scores of one forward pass of a model with a row of them for each token."""


def evaluate(
    model: Model,
    vector: ParameterVector,
    samples: Samples,
    collate: Collate = as_stored,
    device: str = "cpu",
) -> Evaluation:
    """Evaluate a parameter vector on some samples.

    Args:
        vector: its parameters, shape (d,).
        samples: stored inputs and labels, at least one.
    """
    if len(samples.y) == 0:
        raise ValueError("nothing to evaluate on")
    torch_device = device_named(device)
    with reproducible(torch_device):
        module = model.module().to(torch_device)
        load_vector(module, torch.tensor(vector))
        return total(evaluate_part(module, model.form, collate, samples, torch_device))


def evaluate_part(
    module: nn.Module, form: DataForm, collate: Collate, samples: Samples, device: torch.device
) -> tuple[Evaluation, ...]:
    """Return the evaluation of each block of some samples, with the module's loaded parameters.

    A set may be cut at multiples of `BLOCK`; the `total` of all parts' blocks does not change. The
    module is left in evaluation mode; the caller has made its device `reproducible`.
    """
    module.eval()

    def batch(rows: slice) -> Batch:
        # Copies, which torch aligns: kernels may sum in another order at another alignment.
        inputs = torch.tensor(collate(samples.x[rows]), device=device)
        return inputs, torch.tensor(samples.y[rows], device=device)

    return tuple(_block(module, form, rows, batch) for rows in blocks(len(samples.y)))


def blocks(samples: int) -> Iterator[slice]:
    """Yield the rows of each block: `BLOCK` of them, fewer in the last one."""
    for start in range(0, samples, BLOCK):
        yield slice(start, min(start + BLOCK, samples))


def total(blocks_: Iterable[Evaluation]) -> Evaluation:
    """Return the sum of evaluations, the same in any order."""
    evaluations = list(blocks_)
    losses = [evaluation.loss for evaluation in evaluations]
    # Exact if all are finite; `fsum` refuses to add inf and -inf.
    loss = math.fsum(losses) if all(map(math.isfinite, losses)) else math.nan
    correct = [evaluation.correct for evaluation in evaluations]
    return Evaluation(
        correct=None if None in correct else sum(filter(None, correct)),
        loss=loss,
        samples=sum(evaluation.samples for evaluation in evaluations),
    )


def majority_rate(y: Labels) -> float:
    """Return the accuracy of always answering the most frequent class, in (0, 1].

    Of tokens only those with a target count; it is 0 where nothing is classified.
    """
    if y.dtype.kind == "f":
        return 0.0
    counted = y[y != NO_TARGET] if y.ndim > 1 else y
    return float(np.bincount(counted).max() / len(counted))


def _block(
    module: nn.Module, form: DataForm, rows: slice, batch: Callable[[slice], Batch]
) -> Evaluation:
    passes = []
    with torch.no_grad():
        for part in _passes(form, rows):
            inputs, targets = batch(part)
            passes.append(Evaluation(*score(form.task, module(inputs), targets)))
    return passes[0] if len(passes) == 1 else total(passes)


def _passes(form: DataForm, rows: slice) -> Iterator[slice]:
    """Yield the rows of each forward pass of a block."""
    most = rows.stop - rows.start
    if form.task in PER_TOKEN:
        most = max(1, MOST_SCORES // (form.input_shape[0] * form.classes))
    for start in range(rows.start, rows.stop, most):
        yield slice(start, min(start + most, rows.stop))


class EvaluationBlock(NamedTuple):
    """A piece of a sample set that is evaluated at once."""

    place: int
    rows: slice


def blocks_of(sizes: Sequence[int]) -> list[EvaluationBlock]:
    """Return all blocks of some sample sets, set by set, given their sizes."""
    return [
        EvaluationBlock(index, rows) for index, size in enumerate(sizes) for rows in blocks(size)
    ]


def totals_by_set(
    sets: int, blocks_: Sequence[EvaluationBlock], parts: Sequence[Evaluation]
) -> tuple[Evaluation, ...]:
    """Return the evaluation of each of some sets from those of all their blocks."""
    of_set: list[list[Evaluation]] = [[] for _ in range(sets)]
    for block, part in zip(blocks_, parts, strict=True):
        of_set[block.place].append(part)
    return tuple(total(parts_) for parts_ in of_set)


class Evaluator:
    """Evaluates in this process, with a separate module.

    On a GPU a set's collated samples stay there from its first evaluation on.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._device = device_named(workload.device)
        self._module = workload.model.module().to(self._device)
        self._keeps = self._device.type != "cpu"
        self._kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def parts(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        """Return the evaluation of each chosen block.

        Args:
            vector: parameters, shape (d,).
            chosen: slice of their blocks, in the order of `blocks_of`.
        """
        samples = [self._workload.sets[name] for name in sets]
        chosen_blocks = blocks_of([len(set_.y) for set_ in samples])[chosen]
        with reproducible(self._device):
            load_vector(self._module, torch.tensor(vector))
            return [part for index, rows in chosen_blocks for part in self._part(sets[index], rows)]

    def _part(self, name: str, rows: slice) -> tuple[Evaluation, ...]:
        """Return the evaluation of some rows of a set, a block at most."""
        samples, collate = self._workload.sets[name], self._workload.collate
        form = self._workload.model.form
        if not self._keeps:
            part = Samples(samples.x[rows], samples.y[rows])
            return evaluate_part(self._module, form, collate, part, self._device)
        if name not in self._kept:
            self._kept[name] = (
                torch.tensor(collate(samples.x), device=self._device),
                torch.tensor(samples.y, device=self._device),
            )
        inputs, targets = self._kept[name]
        kept = _block(self._module.eval(), form, rows, lambda rows: (inputs[rows], targets[rows]))
        return (kept,)
