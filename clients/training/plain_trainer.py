"""The plain path: one client after another, any module, by automatic differentiation.

A client's training is line 3 of Algorithm 3 and no more: load the parameters, take tau steps of SGD
on its own batches, and write the difference Δ = w_t − w_end to its destination.

A batch has the same bytes wherever the samples are stored. Each is a newly allocated tensor, which
torch aligns: kernels may sum in another order at another alignment, and an update would then depend
on the memory address of its samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from clients.datasets.federated_data import Collate, Samples
from clients.devices import device_named, reproducible
from clients.local_sgd import LocalTraining, batches
from clients.models.model import Model, ParameterVector, load_vector, trainable
from clients.models.tasks import class_shift, require_class_labels, training_loss
from clients.training.port import TrainingJob
from clients.training.resident_updates import ResidentUpdates
from clients.training.update_writer import update_writer

Batch = tuple[torch.Tensor, torch.Tensor]
"""Collated inputs and their targets, one row each."""

# Collating costs per call and per row; more rows than these would leave the cache.
_ROWS_AT_ONCE = 512


def batches_on(
    device: torch.device, train: Sequence[Samples], collate: Collate, settings: LocalTraining
) -> CollatedBatches | ResidentBatches:
    """Return the batches of all clients on a device; client i's samples are at index i."""
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


class PlainTrainer:
    """Trains the clients of one process with one module.

    Attributes:
        chunk: preferred number of clients per call; more gain nothing.

    Args:
        resident: keeps the updates on a GPU as well; None to keep none there.
    """

    chunk = 1

    def __init__(
        self,
        model: Model,
        train: Sequence[Samples],
        collate: Collate,
        settings: LocalTraining,
        device: str,
        resident: ResidentUpdates | None = None,
    ) -> None:
        if settings.calibrated:
            require_class_labels(model.form.task)
        self._device = device_named(device)
        self._task = model.form.task
        self._train, self._classes = train, model.form.classes
        self._calibrated = settings.calibrated
        self._module = model.module().to(self._device).train()
        self._parameters = [tensor for _, tensor in trainable(self._module)]
        ends = accumulate((tensor.numel() for tensor in self._parameters), initial=0)
        self._slices = [slice(start, end) for start, end in pairwise(ends)]
        self._rate = settings.learning_rate
        self._proximal = settings.proximal
        self._batches = batches_on(self._device, train, collate, settings)
        self._writer = update_writer(self._device, model.dimension, resident)

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
        losses: Sequence[NDArray[np.float32]] | None = None,
        written: Callable[[int], None] | None = None,
    ) -> None:
        """Write the update of every job into its row; see `UpdateTrainer.train`."""
        with reproducible(self._device):
            # torch warns about read-only arrays.
            writable = start if start.flags.writeable else start.copy()
            w_start = torch.from_numpy(writable).to(self._device)
            self._writer.begin(rows, written)
            for place, job in enumerate(jobs):
                load_vector(self._module, w_start)
                # Read once, at the end: reading one waits for a GPU.
                taken: list[torch.Tensor] | None = None if losses is None else []
                self._descend(job, w_start, taken)
                self._writer.write(place, partial(self._write_difference, w_start))
                if losses is not None and taken:
                    losses[place][:] = torch.stack(taken).float().cpu().numpy()
            self._writer.finish()

    def _descend(
        self, job: TrainingJob, w_start: torch.Tensor, losses: list[torch.Tensor] | None
    ) -> None:
        shift = self._shift(job) if self._calibrated else None
        for inputs, labels in self._batches.of(job):
            with torch.enable_grad():
                loss = training_loss(self._task, self._module(inputs), labels, shift)
            if losses is not None:
                losses.append(loss.detach())
            loss.backward()
            with torch.no_grad():
                for tensor, slice_ in zip(self._parameters, self._slices, strict=True):
                    if tensor.grad is not None:  # None: unused in the forward pass
                        if self._proximal is not None:
                            moved = tensor - w_start[slice_].view_as(tensor)
                            tensor.grad.add_(moved, alpha=self._proximal)
                        tensor.sub_(tensor.grad, alpha=self._rate)
                        # Not zeroed: the next backward pass provides its own buffer.
                        tensor.grad = None

    def _shift(self, job: TrainingJob) -> torch.Tensor:
        shift = class_shift(self._train[job.client].y, self._classes)
        return torch.tensor(shift, device=self._device)

    @torch.no_grad()
    def _write_difference(self, w_start: torch.Tensor, difference: torch.Tensor) -> None:
        for tensor, slice_ in zip(self._parameters, self._slices, strict=True):
            torch.sub(w_start[slice_], tensor.reshape(-1), out=difference[slice_])
