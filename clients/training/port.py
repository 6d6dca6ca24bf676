"""The port of engines: the work that a run has, and the arithmetic that it needs.

A client is trained with one intra-op thread, and its batch order follows from the job's seed. So
the same torch build on the same kind of processor gives an update the same bytes, whatever the
workers, chunks, machine and other jobs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from clients.datasets.federated_data import Collate, Samples, SettingsTable
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.rules.distance import Distances

if TYPE_CHECKING:
    from clients.models.model import Model, ParameterVector


TrainingPath = Literal["plain", "lockstep"]  # the two differ in an update's last digits


class TrainingError(CmflError):
    """Training or evaluation failed: a worker ended, or the model raised an error."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One client's training in one round; its batch order follows from the 32 bytes of seed."""

    client: int
    seed: bytes


Whole = Annotated[int, Field(le=2**31 - 1)]
"""A number that msgpack can record; what uses it says how small it may be."""
LARGEST = float(np.finfo(np.float32).max)  # largest rate or weight: steps are computed in float32


class LocalTraining(SettingsTable):
    """Training of each client: plain SGD, tau steps or whole epochs.

    With a proximal term it is FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, Algorithm
    2): every step descends F_k(w) + mu/2 |w - w_t|^2, and so stays near the global model. Updates
    of two paths differ in their last digits, so what "auto" chooses is recorded.
    """

    learning_rate: float = 0.1
    """Step size of plain SGD, above 0."""
    batch_size: Whole = 32
    """Number of samples in a step, at least 1. A client with fewer samples uses all of them."""
    local_steps: Whole | None = None
    """tau, steps of a client in a round. Set either local_steps or local_epochs."""
    local_epochs: Whole | None = None
    """Number of passes over the client's data in a round."""
    proximal: float | None = None
    """mu of FedProx, above 0, which pulls each step towards the global model."""
    calibrated: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Whether the loss adds log(n + 0.1) to a class's logit; n counts the class's samples."""
    path: Literal["auto", "plain", "lockstep"] = "auto"
    """Computation of the steps; auto selects the path that fits the model."""

    @model_validator(mode="after")
    def _keeps_rules(self) -> Self:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigurationError(
                f"training.learning_rate = {self.learning_rate}: must be above 0"
            )
        if self.batch_size < 1:
            raise ConfigurationError(f"training.batch_size = {self.batch_size}: must be at least 1")
        lengths = [n for n in (self.local_steps, self.local_epochs) if n is not None]
        if len(lengths) != 1 or lengths[0] < 1:
            raise ConfigurationError(
                f"training.local_steps = {self.local_steps}, training.local_epochs = "
                f"{self.local_epochs}: exactly one must be set, to at least 1"
            )
        if self.proximal is not None and not (math.isfinite(self.proximal) and self.proximal > 0):
            raise ConfigurationError(
                f"training.proximal = {self.proximal}: must be above 0; to train without the "
                "term, remove it"
            )
        for name in ("learning_rate", "proximal"):
            value = getattr(self, name)
            if value is not None and value > LARGEST:
                raise ConfigurationError(
                    f"training.{name} = {value}: must be at most {LARGEST:g} (float32)"
                )
        return self

    def steps(self, samples: int) -> int:
        if self.local_epochs is not None:
            return self.local_epochs * math.ceil(samples / self.batch_size)
        return self.local_steps or 0

    def samples_gone_through(self, samples: int) -> int:
        """Return how many samples a training processes, as a measure of its cost."""
        if self.local_epochs is not None:
            return self.local_epochs * samples
        return (self.local_steps or 0) * min(self.batch_size, samples)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Everything that a process needs for training and evaluation."""

    model: Model
    train: Sequence[Samples]
    sets: Mapping[str, Samples]
    collate: Collate
    training: LocalTraining
    device: str
    path: TrainingPath
    sizes: tuple[int, ...] | None = None  # of all clients' samples; None if all are in `train`
    records_losses: bool = False  # whether updates come with the loss of every local step
    form: PayloadForm = FLOAT32

    def costs(self, jobs: Sequence[TrainingJob]) -> list[int]:
        sizes = (len(self.train[job.client].y) for job in jobs)
        return [self.training.samples_gone_through(size) for size in sizes]

    def require_jobs(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> None:
        require_jobs(start, jobs, self.model.dimension, len(self.train))

    def require_sets(self, vector: ParameterVector, sets: Sequence[str]) -> None:
        _require_vector("vector", vector, self.model.dimension)
        for name in sets:
            if name not in self.sets:
                raise ValueError(f"no set of samples {name!r}; there are {', '.join(self.sets)}")


def require_jobs(
    start: ParameterVector, jobs: Sequence[TrainingJob], dimension: int, clients: int
) -> None:
    """Validate the arguments of a training of some clients; raises ValueError."""
    _require_vector("start", start, dimension)
    for job in jobs:
        if not 0 <= job.client < clients:
            raise ValueError(f"client {job.client} of {clients}")
        if len(job.seed) != 32:
            raise ValueError(f"seed of {len(job.seed)} bytes for client {job.client}")
    if len({job.client for job in jobs}) < len(jobs):
        raise ValueError("two jobs of one client in the same call")


def _require_vector(what: str, vector: ParameterVector, d: int) -> None:
    if vector.shape != (d,) or vector.dtype != np.float32:
        raise ValueError(f"{what}: {vector.dtype} {vector.shape}, not float32 ({d},)")


@dataclass(frozen=True, slots=True, eq=False)
class TrainedUpdate:
    """An update in the engine's memory, which the next training overwrites."""

    client: int
    payload: Payload
    losses: bytes | None = None  # float32, little-endian, of every local step, if recorded
    # The payload's numbers, or the trained ones if its form cannot hold them, shape (d,); None if
    # the payload's bytes are the float32 numbers themselves.
    numbers: NDArray[np.float32] | None = None

    @classmethod
    def decoded(
        cls, client: int, data: bytes | memoryview, form: PayloadForm, dimension: int
    ) -> Self:
        payload = Payload.of(data)
        if form == FLOAT32:
            return cls(client, payload)
        update = form.update_of(payload.data, dimension)
        numbers = np.full(dimension, np.nan, np.float32) if update is None else update
        return cls(client, replace(payload, update=update), numbers=numbers)

    @property
    def vector(self) -> NDArray[np.float32]:
        """Δ = w_start − w_end as the payload has it, shape (d,), read-only; may not be finite."""
        if self.numbers is not None:
            return self.numbers
        return np.frombuffer(self.payload.data, dtype="<f4")

    def copy(self) -> Self:
        payload = Payload(bytes(self.payload.data), self.payload.digest)
        numbers = None if self.numbers is None else self.numbers.copy()
        return replace(self, payload=payload, numbers=numbers)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality of a vector on samples or tokens: a sum of losses; a regression has no `correct`."""

    correct: int | None
    loss: float
    samples: int

    @property
    def accuracy(self) -> float | None:
        """Share of the samples that is classified correctly, in [0, 1]; None of a regression."""
        return None if self.correct is None else self.correct / self.samples

    @property
    def mean_loss(self) -> float | None:
        """Loss of a sample; None if it is not finite."""
        mean = self.loss / self.samples
        return mean if math.isfinite(mean) else None


class UpdateTrainer(Protocol):
    """Trains clients in one process, preferably a chunk of them in a call."""

    chunk: int

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
        losses: Sequence[NDArray[np.float32]] | None = None,
        written: Callable[[int], None] | None = None,
    ) -> None:
        """Write the update of every job from w_t into its row, shape (d,).

        `losses` get the losses of local steps, shape (steps,); `written` gets each complete row.
        """


PendingEvaluation: TypeAlias = Callable[[], tuple[Evaluation, ...]]
"""Waits for the end of an evaluation, and returns one of each set (TrainingError: it failed)."""


class Engine(Protocol):
    """The arithmetic of a run. A context manager: leaving it ends its workers.

    A TrainingError means that a worker ended early or the model failed. A ValueError means that the
    arguments do not belong to the run. `distances` equal `plain_distances` within a tolerance.
    """

    distances: Distances

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job from w_t, shape (d,), in memory of the previous ones."""

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Start to evaluate a parameter vector, shape (d,), in parallel with the caller."""

    def close(self) -> None:
        """End the workers and wait for them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
