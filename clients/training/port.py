"""The port of engines: the arithmetic that a run needs.

Every engine guarantees: with the same torch build on the same kind of processor, an update has the
same bytes whatever the number of workers, their chunks, the machine and the other jobs. Therefore a
client is trained with one intra-op thread, and its batch order follows from the job's seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import CmflError
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.rules.distance import Distances

if TYPE_CHECKING:
    from clients.models.model import ParameterVector


TrainingPath = Literal["plain", "lockstep"]
"""A way to compute the same steps; the updates of the two differ in their last digits."""


class TrainingError(CmflError):
    """Training or evaluation failed: a worker ended, or the model raised an error."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One client's training in one round; its batch order follows from the 32 bytes of seed."""

    client: int
    seed: bytes


@dataclass(frozen=True, slots=True, eq=False)
class TrainedUpdate:
    """An update in the engine's memory, which the next training overwrites.

    Attributes:
        payload: its bytes in the run's form, and their digest.
        losses: float32, little-endian, of every local step; None if they are not recorded.
        numbers: the payload's numbers, or the trained ones if its form cannot hold them, shape
            (d,); None if the payload's bytes are the float32 numbers themselves.
    """

    client: int
    payload: Payload
    losses: bytes | None = None
    numbers: NDArray[np.float32] | None = None

    @classmethod
    def decoded(
        cls, client: int, data: bytes | memoryview, form: PayloadForm, dimension: int
    ) -> Self:
        """Return the update of a payload that was encoded elsewhere."""
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
    """Quality of a parameter vector on some samples.

    Attributes:
        correct: number of samples, or of tokens, classified correctly; None of a regression.
        loss: sum of their cross-entropies or squared errors; not finite if the parameters are not.
        samples: number of samples, or of tokens with a target.
    """

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

        Args:
            losses: destination of the loss of every local step of each job, shape (steps,).
            written: called with the index of each row that is complete, while others are trained.
        """


PendingEvaluation: TypeAlias = Callable[[], tuple[Evaluation, ...]]
"""Waits for the end of an evaluation, and returns one of each set (TrainingError: it failed)."""


class Engine(Protocol):
    """The arithmetic of a run. A context manager: leaving it ends its workers.

    A TrainingError says that a worker ended early, or that the model failed; a ValueError that the
    arguments are not those of the run. `distances` equal `plain_distances` within each rule's
    tolerance.
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
