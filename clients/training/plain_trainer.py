"""The plain path of local SGD: one client after another, for any module.

A client's training is line 3 of Algorithm 3: it takes tau steps of SGD from the global model w_t on
its own batches, and writes the update Δ = w_t − w_end, a pseudo-gradient. The batch order follows
from a seed that the client can recompute, so that the owner of an update can repeat it.

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

from clients.devices import device_named, reproducible
from clients.models.model import (
    ParameterVector,
    class_shift,
    load_vector,
    require_class_labels,
    trainable,
    training_loss,
)
from clients.training.port import LocalTraining, TrainingJob, Workload
from clients.training.updates import ResidentUpdates, update_writer


def permutations(seed: bytes, length: int) -> Iterator[NDArray[np.int64]]:
    """Yield permutations of 0 .. length - 1 without end, all determined by `seed`."""
    bits = np.random.PCG64(int.from_bytes(seed, "little"))
    while True:
        # Sorted raw draws, not Generator.permutation: NumPy promises only the raw output of
        # PCG64 for good, and the owner of an update must be able to repeat it years later.
        yield np.argsort(bits.random_raw(length), kind="stable")


def batches(seed: bytes, samples: int, settings: LocalTraining) -> Iterator[NDArray[np.int64]]:
    """Yield the sample indices of each SGD step of a client with at least one sample.

    Steps are slices of an endless sequence of permutations, all of one size. With epochs, each
    permutation is cut separately, with a shorter last batch.
    """
    orders = permutations(seed, samples)
    size = min(settings.batch_size, samples)
    if settings.local_epochs is not None:
        for _ in range(settings.local_epochs):
            order = next(orders)
            yield from (order[start : start + size] for start in range(0, samples, size))
        return
    remaining = next(orders)
    for _ in range(settings.local_steps or 0):
        if len(remaining) < size:
            remaining = np.concatenate([remaining, next(orders)])
        yield remaining[:size]
        remaining = remaining[size:]


Batch = tuple[torch.Tensor, torch.Tensor]  # collated inputs and their targets, one row each

# Collating costs per call and per row; more rows than these would leave the cache.
_ROWS_AT_ONCE = 512


class CollatedBatches:
    """Batches collated a few steps at a time, without a second copy of the data in memory."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def of(self, job: TrainingJob) -> Iterator[Batch]:
        x, y = self._workload.train[job.client]
        for group in _grouped(batches(job.seed, len(y), self._workload.training)):
            rows = np.concatenate(group)
            inputs, labels = self._workload.collate(x[rows]), y[rows]
            first = 0
            for indices in group:
                last = first + len(indices)
                yield torch.tensor(inputs[first:last]), torch.tensor(labels[first:last])
                first = last


class ResidentBatches:
    """Batches gathered on a device from samples that were collated once."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        collate, train = workload.collate, workload.train
        self._inputs = [torch.tensor(collate(samples.x), device=device) for samples in train]
        self._labels = [torch.tensor(samples.y, device=device) for samples in train]
        self._settings, self._device = workload.training, device

    def of(self, job: TrainingJob) -> Iterator[Batch]:
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
    """Trains the clients of one process with one module; more in one call gain nothing."""

    chunk = 1

    def __init__(self, workload: Workload, resident: ResidentUpdates | None = None) -> None:
        model, self._settings, self._train = workload.model, workload.training, workload.train
        if self._settings.calibrated:
            require_class_labels(model.form.task)
        self._device, self._form = device_named(workload.device), model.form
        self._module = model.module().to(self._device).train()
        self._parameters = [tensor for _, tensor in trainable(self._module)]
        ends = accumulate((tensor.numel() for tensor in self._parameters), initial=0)
        self._slices = [slice(start, end) for start, end in pairwise(ends)]
        self._batches = (
            CollatedBatches(workload)
            if self._device.type == "cpu"
            else ResidentBatches(workload, self._device)
        )
        self._writer = update_writer(self._device, model.dimension, resident)

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
        losses: Sequence[NDArray[np.float32]] | None = None,
        written: Callable[[int], None] | None = None,
    ) -> None:
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
        settings, shift = self._settings, None
        if settings.calibrated:
            per_class = class_shift(self._train[job.client].y, self._form.classes)
            shift = torch.tensor(per_class, device=self._device)
        for inputs, labels in self._batches.of(job):
            with torch.enable_grad():
                loss = training_loss(self._form.task, self._module(inputs), labels, shift)
            if losses is not None:
                losses.append(loss.detach())
            loss.backward()
            with torch.no_grad():
                for tensor, slice_ in zip(self._parameters, self._slices, strict=True):
                    if tensor.grad is not None:  # None: unused in the forward pass
                        if settings.proximal is not None:
                            moved = tensor - w_start[slice_].view_as(tensor)
                            tensor.grad.add_(moved, alpha=settings.proximal)
                        tensor.sub_(tensor.grad, alpha=settings.learning_rate)
                        # Not zeroed: the next backward pass provides its own buffer.
                        tensor.grad = None

    @torch.no_grad()
    def _write_difference(self, w_start: torch.Tensor, difference: torch.Tensor) -> None:
        for tensor, slice_ in zip(self._parameters, self._slices, strict=True):
            torch.sub(w_start[slice_], tensor.reshape(-1), out=difference[slice_])
