"""Evaluation in blocks that any process may take, and their totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from clients.devices import device_named, reproducible
from clients.models.evaluation import blocks, evaluate_part, total
from clients.models.model import load_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.models.model import ParameterVector
    from clients.training.port import Evaluation
    from clients.training.workload import Workload


class EvaluationBlock(NamedTuple):
    """A piece of a sample set that is evaluated at once.

    Attributes:
        place: index of the set among the requested ones.
        rows: of its samples.
    """

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
    """Return the evaluation of each set from those of its blocks.

    Args:
        sets: number of sets.
        blocks_: all their blocks.
        parts: evaluation of each block.
    """
    of_set: list[list[Evaluation]] = [[] for _ in range(sets)]
    for block, part in zip(blocks_, parts, strict=True):
        of_set[block.place].append(part)
    return tuple(total(parts_) for parts_ in of_set)


@dataclass(frozen=True, slots=True)
class FinishedEvaluation:
    """The result of an evaluation that is done."""

    parts: tuple[Evaluation, ...]

    def result(self) -> tuple[Evaluation, ...]:
        """Return one evaluation per requested sample set, in order."""
        return self.parts


class Evaluator:
    """Evaluates in this process, with a separate module.

    Args:
        workload: with model and sample sets.

    Raises:
        ConfigurationError: the device is not available.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._device = device_named(workload.device)
        self._module = workload.model.module().to(self._device)

    def parts(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        """Return the evaluation of each chosen block.

        Args:
            vector: parameters, shape (d,).
            sets: names of the sample sets.
            chosen: slice of their blocks, in the order of `blocks_of`.
        """
        samples = [self._workload.sets[name] for name in sets]
        chosen_blocks = blocks_of([len(set_.y) for set_ in samples])[chosen]
        with reproducible(self._device):
            load_vector(self._module, torch.tensor(vector))
            return [
                part
                for index, rows in chosen_blocks
                for part in evaluate_part(
                    self._module,
                    self._workload.collate,
                    samples[index].x[rows],
                    samples[index].y[rows],
                    self._device,
                )
            ]
