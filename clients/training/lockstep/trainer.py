"""The lockstep path: the clients of a chunk take each step together.

It computes line 3 of Algorithm 3 like `PlainTrainer`, but sums in another order: the updates differ
in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.datasets.federated_data import Collate, Samples
from clients.devices import card_gib, device_named, reproducible
from clients.models.model import ParameterVector, class_shift, require_class_labels
from clients.training.lockstep.network import Chunk, Network
from clients.training.lockstep.plan import (
    NO_PROXIMAL,
    ExecutionPlan,
    UnknownLayerError,
    chain_of,
    execution_plan,
    pooled_first,
)
from clients.training.plain_trainer import batches
from clients.training.port import LocalTraining, TrainingJob, Workload
from clients.training.updates import ResidentUpdates, update_writer
from ledger.protocol.errors import ConfigurationError

_STAGED_BYTES = 32_000_000  # limit of the steps that are laid out together


class Schedule:
    """The samples of a client by step: indices of shape (steps, batch), and counts per batch."""

    def __init__(
        self, job: TrainingJob, samples: Samples, settings: LocalTraining, batch: int
    ) -> None:
        steps = list(batches(job.seed, len(samples.y), settings))
        self.samples, self.steps = samples, len(steps)
        self.counts = np.fromiter(map(len, steps), dtype=np.int64, count=len(steps))
        if (self.counts == batch).all():
            self.rows = np.stack(steps)
            return
        self.rows = np.zeros((len(steps), batch), dtype=np.int64)
        for row, indices in zip(self.rows, steps, strict=True):
            row[: len(indices)] = indices


class Staging:
    """Buffers for the batches of a few steps of a chunk."""

    def __init__(self, network: Network, choice: ExecutionPlan, collate: Collate) -> None:
        self._network, self._collate, self._batch = network, collate, choice.batch
        step_bytes = 4 * (network.inputs.numel() + network.targets.numel())
        self.room = max(1, min(choice.steps, _STAGED_BYTES // step_bytes))
        shapes = (network.inputs.shape, network.targets.shape, network.weights.shape)
        # Client after client within a step, as in the network.
        self._inputs, self._targets, self._weights = (
            torch.zeros(self.room, choice.chunk, choice.batch, *shape[1:]) for shape in shapes
        )
        self._classes = torch.eye(network.targets.shape[1]).numpy()
        self._first = 0

    def begin(self, step: int, schedules: Sequence[Schedule]) -> None:
        """Copy the batches of a step into the network; steps come in order, from 0."""
        if step % self.room == 0:
            self._first = step
            self._inputs.zero_()
            self._weights.zero_()
            for place, schedule in enumerate(schedules):
                self._stage(place, schedule)
        network, here = self._network, step - self._first
        network.inputs.copy_(self._inputs[here].flatten(0, 1))
        network.targets.copy_(self._targets[here].flatten(0, 1))
        network.weights.copy_(self._weights[here].flatten(0, 1))

    def losses(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of each client's batches in the staged steps so far.

        The probabilities have the shape (steps, rows, classes), the losses (steps, chunk). A loss
        is infinite if the probability of a class is 0 in float32.
        """
        steps = len(probabilities)
        targets, weights = self._targets[:steps], self._weights[:steps, :, :, 0]
        # One class of each row: there is one term that is not 0.
        likelihoods = probabilities.view(targets.shape).mul(targets).sum(dim=3)
        # Rows without a sample have weight 0, and then xlogy is 0 whatever is likely.
        return torch.xlogy(weights, likelihoods).sum(dim=2).neg_()

    def _stage(self, place: int, schedule: Schedule) -> None:
        rows = schedule.rows[self._first : self._first + self.room]
        counts = schedule.counts[self._first : self._first + self.room]
        if not len(rows):
            return
        x, y = schedule.samples
        inputs = self._collate(x[rows.ravel()])
        is_taken = np.arange(self._batch) < counts[:, None]  # (steps, batch)
        target = self._inputs[: len(rows), place].numpy()
        factors = is_taken.reshape(*is_taken.shape, *[1] * (target.ndim - 2))
        np.multiply(inputs.reshape(target.shape), factors, out=target)
        self._targets[: len(rows), place].numpy()[...] = self._classes[y[rows]]
        np.divide(is_taken, counts[:, None], out=self._weights[: len(rows), place, :, 0].numpy())


class Recorder:
    """Records a piece of work for repetition, or repeats the work itself."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats the work; the work may be done meanwhile."""
        return work


class CudaGraphRecorder(Recorder):
    """Captures the work in a CUDA graph, which launches all kernels of a step at once.

    A recording reads and writes the same buffers every time. All steps allocate from one pool: they
    are replayed in turn, and each writes its memory before it reads it.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        # One for all warm-up runs: the allocator keeps the memory of each stream apart.
        self._stream = torch.cuda.Stream()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        mode: Any = torch.utils.deterministic  # whose attribute is made when it is imported
        before = mode.fill_uninitialized_memory
        mode.fill_uninitialized_memory = False  # no step reads what it has not written
        try:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(3):  # torch's notes on CUDA graphs: libraries choose kernels first
                    work()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                work()
        finally:
            mode.fill_uninitialized_memory = before
        return graph.replay


def recorder_for(device: torch.device) -> Recorder:
    """Return the recorder of a device."""
    if device.type == "cpu":
        return Recorder()
    with torch.cuda.device(device):
        return CudaGraphRecorder()


class LockstepTrainer:
    """Trains the clients of one process, a chunk at a time; fewer clients take as long.

    The bytes of an update depend on its client, its seed, the start, and the plan, which follows
    from the sizes of all clients of the run.
    """

    def __init__(self, workload: Workload, resident: ResidentUpdates | None = None) -> None:
        model, settings, self._train = workload.model, workload.training, workload.train
        if settings.proximal is not None:
            raise ConfigurationError(f"training.path = 'lockstep': {NO_PROXIMAL}")
        if settings.calibrated:
            require_class_labels(model.form.task)
        self._settings, self._device = settings, device_named(workload.device)
        try:
            chain = pooled_first(chain_of(model.module(), model.form))
        except UnknownLayerError as error:
            raise ConfigurationError(f"training.path = 'lockstep': {error}") from error
        sizes = workload.sizes or [len(samples.y) for samples in workload.train]
        choice = execution_plan(chain, sizes, settings, card_gib(self._device))
        self.chunk, self._batch = choice.chunk, choice.batch
        with torch.inference_mode():
            self._start = torch.empty(model.dimension, device=self._device)
            chunk = Chunk(choice, model.layout, settings.learning_rate, self._device)
            self._network = Network(chain, chunk, calibrated=settings.calibrated)
            self._staging = Staging(self._network, choice, workload.collate)
        # The low-rank factors grow from step to step, so that each has a recording.
        self._recorder, self._steps = recorder_for(self._device), list[Callable[[], None]]()
        self._writer = update_writer(self._device, model.dimension, resident)
        self._probabilities: Tensor | None = None

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
        losses: Sequence[NDArray[np.float32]] | None = None,
        written: Callable[[int], None] | None = None,
    ) -> None:
        # From the first call that asks on: to keep probabilities is recorded with a step.
        if losses is not None and not self._network.probabilities:
            with torch.inference_mode():
                shape = (self._staging.room, *self._network.targets.shape)
                self._probabilities = torch.zeros(shape, device=self._device)
                self._network.probabilities = self._probabilities.unbind()
            self._recorder, self._steps = recorder_for(self._device), []
        destinations: Sequence[NDArray[np.float32] | None] = losses or [None] * len(jobs)
        work = [
            (Schedule(job, self._train[job.client], self._settings, self._batch), row, loss)
            for row, (job, loss) in enumerate(zip(jobs, destinations, strict=True))
        ]
        # Clients that end together share a chunk; within it the first to end are last.
        work.sort(key=lambda entry: -entry[0].steps)
        with reproducible(self._device), torch.inference_mode():
            # torch warns about read-only arrays.
            self._writer.begin(rows, written)
            self._start.copy_(torch.from_numpy(start if start.flags.writeable else start.copy()))
            for first in range(0, len(work), self.chunk):
                chunk = work[first : first + self.chunk]
                schedules, targets, losses_of_chunk = zip(*chunk, strict=True)
                windows = self._train_chunk(schedules, targets)
                if losses is not None:
                    by_step = torch.cat(windows).numpy()
                    pairs = zip(schedules, losses_of_chunk, strict=True)
                    for place, (schedule, target) in enumerate(pairs):
                        if target is not None:
                            target[:] = by_step[: schedule.steps, place]
            self._writer.finish()

    def _train_chunk(self, schedules: Sequence[Schedule], rows: Sequence[int]) -> list[Tensor]:
        steps = schedules[0].steps
        losses: list[Tensor] = []
        for step in range(len(self._steps), steps):
            self._network.load(self._start)
            self._steps.append(self._recorder.record(partial(self._network.step, step)))
        self._network.load(self._start)
        if (shifts := self._network.shifts) is not None:
            for place, schedule in enumerate(schedules):
                shift = class_shift(schedule.samples.y, shifts.shape[1])
                taken = slice(place * self._batch, (place + 1) * self._batch)
                shifts[taken] = torch.from_numpy(shift).to(self._device)
        for step in range(steps):
            self._network.active = sum(step < schedule.steps for schedule in schedules)
            self._staging.begin(step, schedules)
            self._steps[step]()
            # At once: a client that has diverged would go on changing.
            for place, schedule in enumerate(schedules):
                if schedule.steps == step + 1:
                    form = partial(self._network.write, place=place, steps=schedule.steps)
                    self._writer.write(rows[place], form)
            window = step % self._staging.room + 1
            ends = window == self._staging.room or step + 1 == steps
            if self._probabilities is not None and ends:
                losses.append(self._staging.losses(self._probabilities[:window].cpu()))
        return losses
