"""The batches of a job as tensors, the same numbers wherever the samples lie.

Every batch is a tensor of its own, which torch has aligned: kernels may sum in another order at
another alignment, and then an update would depend on where in memory its samples happen to lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from clients.local_sgd import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from clients.datasets.federated_data import Collate, Samples
    from clients.local_sgd import LocalTraining
    from clients.training.port import TrainingJob

Batch = tuple[torch.Tensor, torch.Tensor]
"""Collated inputs, one row each, and their labels as int64."""

# Collating costs by the call as much as by the row; more rows than these would leave the cache.
_ROWS_AT_ONCE = 512


class Batches(Protocol):
    """What each step of a job is taken on."""

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        """Yield the batch of each step, in their order."""


def batches_on(
    device: torch.device, train: Sequence[Samples], collate: Collate, settings: LocalTraining
) -> Batches:
    """Return the batches of all clients where a device wants them.

    Args:
        device: where tensors go.
        train: training samples of client i at index i.
        collate: makes a model's inputs of stored rows.
        settings: batch size and length of the training.
    """
    if device.type == "cpu":
        return CollatedBatches(train, collate, settings)
    return ResidentBatches(train, collate, settings, device)


class CollatedBatches:
    """Collates the rows of a few steps at a time: memory holds no second copy of the data."""

    def __init__(self, train: Sequence[Samples], collate: Collate, settings: LocalTraining) -> None:
        self._train = train
        self._collate = collate
        self._settings = settings

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        """Yield the batch of each step, in their order."""
        x, y = self._train[job.client]
        for group in _grouped(batches(job.seed, len(y), self._settings)):
            rows = np.concatenate(group)
            inputs, labels = self._collate(x[rows]), y[rows]
            first = 0
            for indices in group:
                last = first + len(indices)
                yield torch.tensor(inputs[first:last]), torch.tensor(labels[first:last])
                first = last


class ResidentBatches:
    """Collates all samples once and keeps them on a device, which gathers each batch itself."""

    def __init__(
        self,
        train: Sequence[Samples],
        collate: Collate,
        settings: LocalTraining,
        device: torch.device,
    ) -> None:
        self._inputs = [torch.tensor(collate(samples.x), device=device) for samples in train]
        self._labels = [torch.tensor(samples.y, device=device) for samples in train]
        self._settings = settings
        self._device = device

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        """Yield the batch of each step, in their order."""
        inputs, labels = self._inputs[job.client], self._labels[job.client]
        for indices in batches(job.seed, len(labels), self._settings):
            rows = torch.tensor(indices, device=self._device)
            yield inputs[rows], labels[rows]


def _grouped(steps: Iterable[NDArray[np.int64]]) -> Iterator[list[NDArray[np.int64]]]:
    """Yield consecutive steps together, as many as are collated at once, at least one."""
    group: list[NDArray[np.int64]] = []
    rows = 0
    for indices in steps:
        if group and rows + len(indices) > _ROWS_AT_ONCE:
            yield group
            group, rows = [], 0
        group.append(indices)
        rows += len(indices)
    if group:
        yield group
