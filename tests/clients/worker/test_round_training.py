"""Clients of one worker are trained together, and one that cannot be keeps no other from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.training.port import Engine, TrainedUpdate, TrainingError
from clients.worker.restarting_engine import RestartingEngine
from clients.worker.round_training import (
    MOST_FAILURES,
    LocalUpdates,
    RoundTraining,
    TrainingAssignment,
)
from ledger.protocol.payload import Payload
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import ClientId, Digest
from tests.clients.worker.together import QuickDisk
from tests.support.executors import ImmediateExecutor
from tests.support.keys import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.training.port import PendingEvaluation, TrainingJob

MODEL = np.zeros(4, "<f4")
CLIENTS = tuple(map(ClientId, range(10)))


class Fragile(Engine):
    """Writes every update into the same rows; it fails for some, and then for all, for good.

    Attributes:
        calls: the clients of each call.
        fails_for: whose samples the model fails on.
    """

    distances = staticmethod(plain_distances)

    def __init__(self, calls: list[list[int]], fails_for: set[int]) -> None:
        self.calls = calls
        self.fails_for = fails_for
        self._rows = np.zeros((len(CLIENTS), len(MODEL)), "<f4")
        self._is_open = True

    def train(self, start: np.ndarray, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        assert start is MODEL
        clients = [job.client for job in jobs]
        self.calls.append(clients)
        if not self._is_open or self.fails_for.intersection(clients):
            self.close()
            raise TrainingError(f"the model failed for one of {clients}")
        for row, client in zip(self._rows, clients, strict=False):
            row[:] = client + 1
        rows = (row.data.toreadonly().cast("B") for row in self._rows)
        return [TrainedUpdate(c, Payload.of(row)) for c, row in zip(clients, rows, strict=False)]

    def evaluate(self, vector: np.ndarray, sets: Sequence[str]) -> PendingEvaluation:
        raise NotImplementedError

    def close(self) -> None:
        self._is_open = False


def assignment(number: int) -> TrainingAssignment:
    return TrainingAssignment(DOMAIN, number, Digest(bytes(32)), MODEL, CLIENTS, MODEL.nbytes)


def trained(training: RoundTraining) -> dict[int, set[float]]:
    """Return the values in the update of each client."""
    return {
        int(client): set(np.frombuffer(update.data, "<f4").tolist())
        for client, update in training.held.items()
    }


@pytest.mark.parametrize("lonely", [{3}, {0, 9}, {4, 5, 6}])
def test_a_client_failing_in_the_model_blocks_no_other_update(
    tmp_path: Path, lonely: set[int]
) -> None:
    calls: list[list[int]] = []
    engine = RestartingEngine(lambda: Fragile(calls, lonely))
    training = RoundTraining(engine, LocalUpdates(tmp_path, disk=QuickDisk()), ImmediateExecutor())
    expected = {int(c): {c + 1.0} for c in CLIENTS if c not in lonely}
    with pytest.raises(TrainingError, match="the model failed for one of"):
        training.updates(assignment(1))
    assert trained(training) == expected
    training.forget()
    calls.clear()
    with pytest.raises(TrainingError):
        training.updates(assignment(2))
    assert trained(training) == expected
    assert calls[0] == sorted(expected), "who has failed is tried alone from then on"
    lonely.clear()
    training.forget()
    assert training.updates(assignment(3)) is not None
    assert trained(training).keys() == set(CLIENTS)


def test_if_training_fails_for_all_few_are_retried_first(tmp_path: Path) -> None:
    calls: list[list[int]] = []
    broken = set(map(int, CLIENTS))
    engine = RestartingEngine(lambda: Fragile(calls, broken))
    training = RoundTraining(engine, LocalUpdates(tmp_path, disk=QuickDisk()), ImmediateExecutor())
    about = assignment(1)
    with pytest.raises(TrainingError):
        training.updates(about)
    assert len(calls) == 1 + MOST_FAILURES
    assert training.held == {}
    broken.clear()
    assert training.updates(about) is not None
    assert len(training.held) == len(CLIENTS)


def test_an_engine_that_is_closed_is_not_opened_again() -> None:
    opened: list[Fragile] = []

    def another() -> Fragile:
        opened.append(Fragile([], {0}))
        return opened[-1]

    engine = RestartingEngine(another)
    engine.close()
    for _ in range(2):
        with pytest.raises(TrainingError):
            engine.train(MODEL, [])
    assert len(opened) == 1


def test_interrupted_training_is_not_continued_client_by_client(tmp_path: Path) -> None:
    calls: list[list[int]] = []

    class Interrupted(Fragile):
        """Has its first call broken off, as by the end of its process."""

        def train(self, start: np.ndarray, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
            engine.interrupt()
            self.fails_for = {job.client for job in jobs}
            return super().train(start, jobs)

    engine = RestartingEngine(lambda: Interrupted(calls, set()))
    training = RoundTraining(engine, LocalUpdates(tmp_path, disk=QuickDisk()), ImmediateExecutor())
    with pytest.raises(TrainingError, match="the worker ends"):
        training.updates(assignment(1))
    assert calls == [list(map(int, CLIENTS))]
