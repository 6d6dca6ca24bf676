"""The batches of a training job as tensors, with the same bytes wherever the samples are stored.

Each batch is a newly allocated tensor, which torch aligns. Kernels may sum in another order at
another alignment, and an update would then depend on the memory address of its samples.
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

# Collating costs per call and per row; more rows than these would leave the cache.
_ROWS_AT_ONCE = 512


class Batches(Protocol):
    """Source of the batches of a job."""

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        """Yield the batch of each step, in order."""


def batches_on(
    device: torch.device, train: Sequence[Samples], collate: Collate, settings: LocalTraining
) -> Batches:
    """Return the batches of all clients on a device.

    Args:
        device: of the tensors.
        train: training samples of client i at index i.
        collate: makes a model's inputs of stored rows.
        settings: batch size and length of the training.
    """
    if device.type == "cpu":
        return CollatedBatches(train, collate, settings)
    return ResidentBatches(train, collate, settings, device)


class CollatedBatches:
    """Batches collated a few steps at a time, without a second copy of the data in memory."""

    def __init__(self, train: Sequence[Samples], collate: Collate, settings: LocalTraining) -> None:
        self._train = train
        self._collate = collate
        self._settings = settings

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        """Yield the batch of each step, in order."""
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
    """Batches gathered on a device from samples that were collated once."""

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
        """Yield the batch of each step, in order."""
        inputs, labels = self._inputs[job.client], self._labels[job.client]
        for indices in batches(job.seed, len(labels), self._settings):
            rows = torch.tensor(indices, device=self._device)
            yield inputs[rows], labels[rows]


def _grouped(steps: Iterable[NDArray[np.int64]]) -> Iterator[list[NDArray[np.int64]]]:
    """Yield groups of consecutive steps that are collated together, at least one each."""
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
