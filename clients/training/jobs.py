"""The jobs of an engine: their order, and how a process trains and evaluates.

A parameter vector is evaluated in blocks that any process may take. Blocks begin at multiples of
`BLOCK`, and are summed exactly: the bytes are the same whichever process does each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
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
from clients.devices import card_failure, device_named, reproducible
from clients.models.model import Model, ParameterVector, load_vector, score
from clients.training.plain_trainer import Batch, PlainTrainer
from clients.training.port import Evaluation, TrainingError, TrainingJob, UpdateTrainer, Workload
from clients.training.updates import EncodedRow, ResidentUpdates, RowPayloads, UpdateMatrix
from ledger.io.user_code import message_of
from ledger.protocol.errors import CmflError


def trainer_of(workload: Workload, resident: ResidentUpdates | None = None) -> UpdateTrainer:
    """Return a new trainer for this process; `resident` keeps the updates on a GPU as well."""
    if workload.path == "plain":
        return PlainTrainer(workload, resident)
    from clients.training.lockstep.trainer import LockstepTrainer  # noqa: PLC0415 - with tracing

    return LockstepTrainer(workload, resident)


class JobQueue:
    """The jobs of a round that no worker has taken yet, longest first, in chunks of this size."""

    def __init__(self, costs: Sequence[int], workers: int, chunk: int) -> None:
        # Equal jobs stay in order, so repeated runs behave alike.
        self._remaining = deque(sorted(range(len(costs)), key=lambda job: (-costs[job], job)))
        self._costs, self._workers, self._remaining_cost = costs, workers, sum(costs)
        # A trainer of many clients at once takes whole chunks, as many as the other workers.
        pieces = workers * math.ceil(len(costs) / (workers * chunk))
        self._chunk = math.ceil(len(costs) / max(pieces, 1))

    def take(self) -> list[int]:
        """Return the indices of the jobs that a free worker does next; empty at the end."""
        # Half of its share of the remaining cost: the others never wait for a late large piece, and
        # small jobs are still sent many at a time.
        target_cost = 0.5 * self._remaining_cost / self._workers
        jobs: list[int] = []
        cost = 0
        while chunk := list(islice(self._remaining, self._chunk)):
            chunk_cost = sum(self._costs[job] for job in chunk)
            if jobs and cost + chunk_cost > target_cost:
                break
            jobs.extend(self._remaining.popleft() for _ in chunk)
            cost += chunk_cost
        self._remaining_cost -= cost
        return jobs


@contextmanager
def as_training_error() -> Iterator[None]:
    """Turn any exception of a model, which may be user code, or a card into a TrainingError."""
    try:
        yield
    except (CmflError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: the command would end as if it had succeeded
        failure = card_failure(error)
        if failure is not None:
            raise TrainingError(failure) from error
        message = " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:500]
        raise TrainingError(f"the model failed: {message}") from error


def train_alone(workload: Workload, start: ParameterVector, seed: bytes) -> NDArray[np.float32]:
    """Return the update of a workload's only client, shape (d,), trained in this process."""
    update = np.empty(workload.model.dimension, dtype=np.float32)
    with as_training_error():
        trainer_of(workload).train(start, [TrainingJob(0, seed)], [update])
    return update


BLOCK = 256  # samples of one forward pass: a large model's activations have to fit into memory
MOST_SCORES = 2**24  # scores of one forward pass of a model with a row of them for each token


def evaluate(
    model: Model,
    vector: ParameterVector,
    samples: Samples,
    collate: Collate = as_stored,
    device: str = "cpu",
) -> Evaluation:
    """Evaluate a parameter vector, shape (d,), on at least one stored sample."""
    if len(samples.y) == 0:
        raise ValueError("nothing to evaluate on")
    torch_device = device_named(device)
    with reproducible(torch_device):
        module = model.module().to(torch_device)
        load_vector(module, torch.tensor(vector))
        batch = batches_of(samples, collate, torch_device)
        rows = blocks(len(samples.y))
        return total(evaluate_block(module, model.form, batch, each) for each in rows)


BatchOf = Callable[[slice], Batch]  # returns the collated inputs and the targets of some rows


def batches_of(samples: Samples, collate: Collate, device: torch.device) -> BatchOf:
    """Return the batches of a set, which is collated as it is read."""

    def batch(rows: slice) -> Batch:
        # Copies, which torch aligns: kernels may sum in another order at another alignment.
        inputs = torch.tensor(collate(samples.x[rows]), device=device)
        return inputs, torch.tensor(samples.y[rows], device=device)

    return batch


def evaluate_block(module: nn.Module, form: DataForm, batch: BatchOf, rows: slice) -> Evaluation:
    """Return the evaluation of some rows by a loaded module on a `reproducible` device."""
    most = rows.stop - rows.start
    if form.task in PER_TOKEN:
        most = max(1, MOST_SCORES // (form.input_shape[0] * form.classes))
    passes = []
    module.eval()
    with torch.no_grad():
        for start in range(rows.start, rows.stop, most):
            inputs, targets = batch(slice(start, min(start + most, rows.stop)))
            passes.append(Evaluation(*score(form.task, module(inputs), targets)))
    return passes[0] if len(passes) == 1 else total(passes)


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
    """Return the accuracy of always answering the most frequent class; 0 of a regression."""
    if y.dtype.kind == "f":
        return 0.0
    counted = y[y != NO_TARGET] if y.ndim > 1 else y
    return float(np.bincount(counted).max() / len(counted))


class EvaluationBlock(NamedTuple):
    """A piece of a sample set that is evaluated at once."""

    place: int
    rows: slice


def blocks_of(sizes: Sequence[int]) -> list[EvaluationBlock]:
    """Return all blocks of some sample sets, set by set, given their sizes."""
    return [
        EvaluationBlock(index, rows) for index, size in enumerate(sizes) for rows in blocks(size)
    ]


def blocks_of_sets(workload: Workload, sets: Sequence[str]) -> list[EvaluationBlock]:
    """Return all blocks of some sample sets, set by set."""
    return blocks_of([len(workload.sets[name].y) for name in sets])


def totals_by_set(
    sets: int, blocks_: Sequence[EvaluationBlock], parts: Sequence[Evaluation]
) -> tuple[Evaluation, ...]:
    """Return the evaluation of each of some sets from the evaluations of all their blocks."""
    of_set: list[list[Evaluation]] = [[] for _ in range(sets)]
    for block, part in zip(blocks_, parts, strict=True):
        of_set[block.place].append(part)
    return tuple(total(parts_) for parts_ in of_set)


def shares(blocks: Sequence[EvaluationBlock], workers: int) -> list[slice]:
    """Return a slice of the blocks for each worker, with about the same number of samples."""
    sizes = [block.rows.stop - block.rows.start for block in blocks]
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    bounds = [bisect_right(middles, sum(sizes) * i / workers) for i in range(1, workers)]
    return [slice(*pair) for pair in pairwise([0, *bounds, len(blocks)])]


class Evaluator:
    """Evaluates with a separate module; a GPU keeps the samples of each set."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._device = workload, device_named(workload.device)
        self._module = workload.model.module().to(self._device)
        self._batches: dict[str, BatchOf] = {}

    def parts(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        form, blocks_ = self._workload.model.form, blocks_of_sets(self._workload, sets)[chosen]
        with reproducible(self._device):
            load_vector(self._module, torch.tensor(vector))
            return [
                evaluate_block(self._module, form, self._batches_of(sets[index]), rows)
                for index, rows in blocks_
            ]

    def _batches_of(self, name: str) -> BatchOf:
        if name not in self._batches:
            samples, collate = self._workload.sets[name], self._workload.collate
            self._batches[name] = batches_of(samples, collate, self._device)
            if self._device.type != "cpu":
                inputs, targets = self._batches[name](slice(None))
                self._batches[name] = lambda rows: (inputs[rows], targets[rows])
        return self._batches[name]


class JobRunner:
    """Does a workload's jobs in this process, into the rows of a matrix."""

    def __init__(
        self, workload: Workload, updates: UpdateMatrix, resident: ResidentUpdates | None = None
    ) -> None:
        self._workload, self._updates = workload, updates
        self._trainer = trainer_of(workload, resident)
        self.chunk = self._trainer.chunk

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self._workload)

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        count: int,
        places: Sequence[int],
        *,
        hashes_meanwhile: bool,
    ) -> list[EncodedRow]:
        """Write each job's update into its row of `count`; return payloads."""
        workload, matrix = self._workload, self._updates.rows(count)
        losses: list[NDArray[np.float32]] | None = None
        if workload.records_losses:
            sizes = (len(workload.train[job.client].y) for job in jobs)
            losses = [np.empty(workload.training.steps(n), np.float32) for n in sizes]
        rows = [matrix[place] for place in places]
        with RowPayloads(self._updates, count, places, workload.device) as payloads:
            begin = payloads.begin if hashes_meanwhile else None
            self._trainer.train(start, jobs, rows, losses, begin)
            encoded = payloads.result()
        if losses is None:
            return encoded
        # PyTorch only runs on little-endian machines.
        pairs = zip(encoded, losses, strict=True)
        return [replace(row, losses=part.tobytes()) for row, part in pairs]
