"""An engine whose steps a pencil can follow: each client's update is always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.configuration.schema import EvaluationSection
from clients.datasets.federated_data import DataForm, FederatedData, Samples
from clients.runs.metrics import ModelGauge
from clients.training.port import Engine, Evaluation, PendingEvaluation, TrainedUpdate
from clients.training.workers.shared_memory import payload_of
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.models.model import ParameterVector
    from clients.training.port import TrainingJob

TESTED = 8
"""Test samples, of which as many are classified right as a model's first number says."""


class StepEngine(Engine):
    """Every training of client k takes the same step, whatever it starts from.

    Attributes:
        trained: the clients of each call, in their order.

    Args:
        steps: w_end - w_start of each client, shape (d,).
    """

    def __init__(self, steps: Mapping[int, Sequence[float]]) -> None:
        self.distances = plain_distances
        self.trained: list[list[int]] = []
        self._steps = {client: -np.array(step, np.float32) for client, step in steps.items()}

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        del start
        self.trained.append([job.client for job in jobs])
        return [TrainedUpdate(job.client, payload_of(self._steps[job.client])) for job in jobs]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        found = Evaluation(int(vector[0]), float(vector[-1]) * TESTED, TESTED)
        return PendingEvaluation(lambda: tuple(found for _ in sets))

    def close(self) -> None:
        pass


def gauge_of(engine: Engine, clients: int, rounds: int = 4, every: int = 1) -> ModelGauge:
    return ModelGauge(engine, EvaluationSection(every=every), {"test": TESTED}, rounds, clients)


def data_of(*samples: int) -> FederatedData:
    """Return data whose client i has so many samples."""
    train = tuple(Samples(np.zeros((n, 1)), np.zeros(n, np.int64)) for n in samples)
    return FederatedData("steps", DataForm((1,), 2), train, train[0])


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))
