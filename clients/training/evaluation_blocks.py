"""Evaluation in blocks that any process may take, and what they come to together."""

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
    """A piece of one set of samples that is evaluated at once.

    Attributes:
        place: of the set among those that were asked for.
        rows: which of its samples.
    """

    place: int
    rows: slice


def blocks_of(sizes: Sequence[int]) -> list[EvaluationBlock]:
    """Return all blocks of some sets of samples, set by set.

    Args:
        sizes: samples in each set.
    """
    return [
        EvaluationBlock(place, rows) for place, size in enumerate(sizes) for rows in blocks(size)
    ]


def totals_by_set(
    sets: int, cut: Sequence[EvaluationBlock], parts: Sequence[Evaluation]
) -> tuple[Evaluation, ...]:
    """Return what each set comes to.

    Args:
        sets: how many there are.
        cut: all their blocks.
        parts: what each block came to.
    """
    of_set: list[list[Evaluation]] = [[] for _ in range(sets)]
    for block, part in zip(cut, parts, strict=True):
        of_set[block.place].append(part)
    return tuple(total(found) for found in of_set)


@dataclass(frozen=True, slots=True)
class FinishedEvaluation:
    """An evaluation that was done at once.

    Attributes:
        parts: what it came to.
    """

    parts: tuple[Evaluation, ...]

    def result(self) -> tuple[Evaluation, ...]:
        """Return one part for each set of samples that was asked for, in that order."""
        return self.parts


class Evaluator:
    """Evaluates in this process, by a module of its own.

    Args:
        workload: whose model and sets of samples.

    Raises:
        ConfigurationError: a device that is not there.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._device = device_named(workload.device)
        self._module = workload.model.module().to(self._device)

    def parts(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        """Return what each of the chosen blocks comes to.

        Args:
            vector: parameters, shape (d,).
            sets: names of the sets of samples.
            chosen: which of their blocks, in the order of `blocks_of`.
        """
        samples = [self._workload.sets[name] for name in sets]
        cut = blocks_of([len(one.y) for one in samples])[chosen]
        with reproducible(self._device):
            load_vector(self._module, torch.tensor(vector))
            return [
                part
                for place, rows in cut
                for part in evaluate_part(
                    self._module,
                    self._workload.collate,
                    samples[place].x[rows],
                    samples[place].y[rows],
                    self._device,
                )
            ]
