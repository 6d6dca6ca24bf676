"""What a run asks of whoever does its arithmetic.

The contract of every engine: with the same torch build on the same kind of processor, an update
has the same bytes whatever the number of workers, their chunks, the machine they run on and the
other jobs. So a client is the unit of work, it is trained with one intra-op thread, its batch order
follows from the job's seed alone, and updates come back in the order of the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from clients.models.model import ParameterVector
    from ledger.protocol.payload import Payload
    from ledger.protocol.rules.distance.rule import Distances


class TrainingError(CmflError):
    """Training or evaluation could not be carried out: a worker ended, or the model failed."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One client's training in one round.

    Attributes:
        client: whose data.
        seed: what the batch order follows from, 32 bytes.
    """

    client: int
    seed: bytes


@dataclass(frozen=True, slots=True, eq=False)
class TrainedUpdate:
    """An update where it lies: in memory that the engine owns, and writes to when it trains again.

    Attributes:
        client: whose it is.
        payload: its bytes, hashed once by whoever made them.
    """

    client: int
    payload: Payload

    @property
    def vector(self) -> NDArray[np.float32]:
        """Δ = w_start − w_end, shape (d,), read-only; not finite where SGD diverged."""
        return np.frombuffer(self.payload.data, dtype="<f4")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a parameter vector comes to on some samples.

    Attributes:
        correct: samples classified right.
        loss: sum of their cross-entropies; not finite where the parameters are not.
        samples: how many there were.
    """

    correct: int
    loss: float
    samples: int


class UpdateTrainer(Protocol):
    """Trains clients in one process: what an engine is made of.

    Attributes:
        chunk: how many clients it likes to take at once.
    """

    chunk: int

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
    ) -> None:
        """Write the update of every job into its row.

        Args:
            start: the global model w_t, shape (d,).
            jobs: the jobs.
            rows: where the update of each goes, each of shape (d,).
        """


class PendingEvaluation(Protocol):
    """An evaluation that may still be going on."""

    def result(self) -> tuple[Evaluation, ...]:
        """Wait for it; one part for each set of samples that was asked for, in that order.

        Raises:
            TrainingError: a worker ended before its work was done.
        """


class Engine(Protocol):
    """Does the arithmetic of a run. A context manager: leaving it ends its workers.

    Attributes:
        distances: twin of `plain_distances`, equal to it within each rule's tolerance.
    """

    distances: Distances

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; those of the call before are overwritten.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, no client twice.

        Raises:
            ValueError: a start of another length, an unknown or repeated client, or a seed that
                is not 32 bytes.
            TrainingError: a worker ended before its work was done.
        """

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Begin to evaluate a parameter vector, beside whatever the caller does meanwhile.

        Args:
            vector: shape (d,).
            sets: names of the sets of samples that the engine was made with.

        Raises:
            ValueError: a vector of another length, or an unknown set.
            TrainingError: a worker has ended.
        """

    def close(self) -> None:
        """End the workers and wait for them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
