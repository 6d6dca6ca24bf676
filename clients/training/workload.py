"""The work of an engine: model, data and settings, its jobs in order, and how a process does them.

A model may be user code: whatever it raises becomes a TrainingError.

A parameter vector is evaluated in blocks that any process may take. Blocks begin at multiples of
`BLOCK`, and are summed exactly: the result has the same bytes whichever process evaluates each
block.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from clients.training.device_distances import ResidentUpdates
from clients.training.plain_trainer import (
    Batch,
    LocalTraining,
    PlainTrainer,
    samples_gone_through,
    step_count,
)
from clients.training.port import (
    Evaluation,
    TrainingError,
    TrainingJob,
    TrainingPath,
    UpdateTrainer,
)
from clients.training.update_rows import EncodedRow, RowPayloads, UpdateMatrix, hashing_threads
from ledger.io.user_code import message_of
from ledger.protocol.errors import CmflError
from ledger.protocol.payloads import FLOAT32, PayloadForm

_SEED_BYTES = 32
# Size of a piece as a fraction of a worker's share of the remaining cost: the others never wait for
# a late large piece, and small jobs are still sent many at a time.
_SHARE = 0.5
_LONGEST = 500


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Everything that a process needs for training and evaluation.

    Attributes:
        device: its name in the settings, of what computes in the process that opens a trainer.
        sizes: number of training samples of each client of the run, also of those whose samples
            are not here; None where all are.
        records_losses: whether updates come with the loss of every local step.
    """

    model: Model
    train: Sequence[Samples]
    sets: Mapping[str, Samples]
    collate: Collate
    training: LocalTraining
    device: str
    path: TrainingPath
    sizes: tuple[int, ...] | None = None
    records_losses: bool = False
    form: PayloadForm = FLOAT32

    def trainer(self, resident: ResidentUpdates | None = None) -> UpdateTrainer:
        """Return a new trainer for this process.

        Args:
            resident: keeps the updates on a GPU as well; None to keep none there.
        """
        arguments = (self.model, self.train, self.collate, self.training, self.device)
        if self.path == "plain":
            return PlainTrainer(*arguments, resident)
        # The imports for tracing are only needed on this path.
        from clients.training.lockstep.trainer import LockstepTrainer  # noqa: PLC0415

        return LockstepTrainer(*arguments, self.sizes, resident)

    def costs(self, jobs: Sequence[TrainingJob]) -> list[int]:
        sizes = [len(self.train[job.client].y) for job in jobs]
        return [samples_gone_through(size, self.training) for size in sizes]

    def empty_losses(self, jobs: Sequence[TrainingJob]) -> list[NDArray[np.float32]] | None:
        """Return the destination of each job's losses; None if none are recorded."""
        if not self.records_losses:
            return None
        sizes = (len(self.train[job.client].y) for job in jobs)
        return [np.empty(step_count(size, self.training), np.float32) for size in sizes]

    def blocks(self, sets: Sequence[str]) -> list[EvaluationBlock]:
        return blocks_of([len(self.sets[name].y) for name in sets])

    def require_jobs(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> None:
        require_jobs(start, jobs, self.model.dimension, len(self.train))

    def require_sets(self, vector: ParameterVector, sets: Sequence[str]) -> None:
        require_vector("vector", vector, self.model.dimension)
        for name in sets:
            if name not in self.sets:
                raise ValueError(f"no set of samples {name!r}; there are {', '.join(self.sets)}")


def require_jobs(
    start: ParameterVector, jobs: Sequence[TrainingJob], dimension: int, clients: int
) -> None:
    """Validate the arguments of a training of some clients; raises ValueError."""
    require_vector("start", start, dimension)
    for job in jobs:
        if not 0 <= job.client < clients:
            raise ValueError(f"client {job.client} of {clients}")
        if len(job.seed) != _SEED_BYTES:
            raise ValueError(f"seed of {len(job.seed)} bytes for client {job.client}")
    if len({job.client for job in jobs}) < len(jobs):
        raise ValueError("two jobs of one client in the same call")


def require_vector(what: str, vector: ParameterVector, d: int) -> None:
    """Reject parameters that are not float32 of shape (d,); raises ValueError."""
    if vector.shape != (d,) or vector.dtype != np.float32:
        raise ValueError(f"{what}: {vector.dtype} {vector.shape}, not float32 ({d},)")


class JobQueue:
    """The jobs of one round that no worker has taken yet: the longest come first.

    The order affects the duration of a round, never an update.

    Args:
        chunk: number of jobs that a worker prefers to take at once.
    """

    def __init__(self, costs: Sequence[int], workers: int, chunk: int) -> None:
        # Equal jobs stay in order, so repeated runs behave alike.
        self._remaining = deque(sorted(range(len(costs)), key=lambda job: (-costs[job], job)))
        self._costs = costs
        self._remaining_cost = sum(costs)
        self._workers = workers
        # A trainer of many clients at once takes whole chunks, as many as the other workers.
        pieces = workers * math.ceil(len(costs) / (workers * chunk))
        self._chunk = math.ceil(len(costs) / max(pieces, 1))

    def take(self) -> list[int]:
        """Return the indices of the jobs that a free worker does next; empty if none are left."""
        target_cost = _SHARE * self._remaining_cost / self._workers
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
    """Turn any exception of a model or a card into a TrainingError."""
    try:
        yield
    except (CmflError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: the command would end as if it had succeeded
        failure = card_failure(error)
        if failure is not None:
            raise TrainingError(failure) from error
        message = " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:_LONGEST]
        raise TrainingError(f"the model failed: {message}") from error


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


def shares(blocks: Sequence[EvaluationBlock], workers: int) -> list[slice]:
    """Return a slice of the blocks for each worker, with about the same number of samples.

    They are assigned in advance: nobody distributes work during an evaluation.
    """
    sizes = [block.rows.stop - block.rows.start for block in blocks]
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    bounds = [bisect_right(middles, sum(sizes) * i / workers) for i in range(1, workers)]
    return [slice(*pair) for pair in pairwise([0, *bounds, len(blocks)])]


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
        chosen_blocks = self._workload.blocks(sets)[chosen]
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


class JobRunner:
    """Does a workload's jobs in this process, into the rows of a matrix."""

    def __init__(
        self, workload: Workload, updates: UpdateMatrix, resident: ResidentUpdates | None = None
    ) -> None:
        self._workload = workload
        self._updates = updates
        self._trainer = workload.trainer(resident)
        self._evaluator: Evaluator | None = None

    @property
    def chunk(self) -> int:
        """Number of jobs that the trainer prefers to take at once."""
        return self._trainer.chunk

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        count: int,
        places: Sequence[int],
        *,
        hashes_meanwhile: bool,
    ) -> tuple[EncodedRow, ...]:
        """Write the update of each job into its row, and return the payloads of these rows.

        Args:
            count: number of rows that the call needs, of which these jobs may be a part.
            hashes_meanwhile: whether rows are encoded while others are trained.
        """
        matrix, losses = self._updates.rows(count), self._workload.empty_losses(jobs)
        rows, threads = [matrix[place] for place in places], hashing_threads(self._workload.device)
        with RowPayloads(self._updates, count, places, threads) as payloads:
            begin = payloads.begin if hashes_meanwhile else None
            self._trainer.train(start, jobs, rows, losses, begin)
            encoded = payloads.result()
        if losses is None:
            return tuple(encoded)
        # PyTorch only runs on little-endian machines.
        pairs = zip(encoded, losses, strict=True)
        return tuple(replace(row, losses=part.tobytes()) for row, part in pairs)

    def evaluate(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        """Return the evaluation of each chosen block; see `Evaluator.parts`."""
        if self._evaluator is None:
            self._evaluator = Evaluator(self._workload)
        return self._evaluator.parts(vector, sets, chosen)
