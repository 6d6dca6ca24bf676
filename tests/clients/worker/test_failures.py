"""What goes wrong is said once and tried again; one client's failure keeps no other back."""

from __future__ import annotations

import logging
import threading
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from clients.training.port import Engine, TrainedUpdate, TrainingError
from clients.worker.background_work import SingleThreadExecutor, TaskInterrupt, TransactionSender
from clients.worker.chain_clock import Moment
from clients.worker.failures import BACKOFF, FailureTracker, WorkPart
from clients.worker.restarting_engine import RestartingEngine
from clients.worker.round_training import (
    MOST_FAILURES,
    LocalUpdates,
    RoundTraining,
    TrainingAssignment,
)
from ledger.protocol.errors import ChainError
from ledger.protocol.payload import Payload
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import ClientId, Digest
from tests.clients.worker.together import QuickDisk
from tests.patience import PATIENCE_SECONDS
from tests.support.executors import ImmediateExecutor
from tests.support.keys import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.training.port import PendingEvaluation, TrainingJob


def failing() -> bool:
    raise ChainError("the node does not answer")


def at(steady: float) -> Moment:
    return Moment(wall=0, steady=steady)


def test_a_failure_and_its_end_are_each_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureTracker(Random(1))
    with caplog.at_level(logging.WARNING):
        for second in range(0, 100, 10):
            assert failures.attempt(WorkPart.CHAIN, at(second), failing) is None
        assert failures.attempt(WorkPart.CHAIN, at(200), lambda: True)
    assert [record.getMessage() for record in caplog.records] == [
        "chain: the node does not answer",
        "chain: works again after 10 failures",
    ]
    assert failures.counts[WorkPart.CHAIN] == 10
    assert failures.ongoing == {}


def test_pauses_grow_are_spread_and_are_bounded() -> None:
    failures, steady = FailureTracker(Random(1)), 0.0
    pauses = []
    for _ in range(12):
        failures.record_failure(WorkPart.CHAIN, at(steady), ChainError("no"))
        pauses.append(failures.ongoing[WorkPart.CHAIN].until - steady)
        steady = failures.ongoing[WorkPart.CHAIN].until
    assert 0.125 <= pauses[0] <= 0.25
    assert max(pauses) <= BACKOFF[WorkPart.CHAIN].longest_seconds
    assert len(set(pauses)) == len(pauses), "chance spreads them"


def test_a_failed_action_waits_and_no_other_does() -> None:
    failures = FailureTracker(Random(1))
    failures.attempt(WorkPart.SENDING, at(0), failing)
    assert failures.attempt(WorkPart.SENDING, at(0.01), lambda: True) is None
    assert failures.attempt(WorkPart.VOTING, at(0.01), lambda: True)
    assert failures.attempt(WorkPart.SENDING, at(9), lambda: True)


def test_a_fault_of_ours_is_no_trouble() -> None:
    with pytest.raises(ZeroDivisionError):
        FailureTracker(Random(1)).attempt(WorkPart.CHAIN, at(0), lambda: 1 // 0)


def test_one_batch_is_sent_at_a_time() -> None:
    thread = SingleThreadExecutor("sending")
    sending = TransactionSender(thread, FailureTracker(Random(1)))
    begun: set[str] = set()

    def send(what: str) -> bool:
        begun.add(what)
        return True

    for what in ("one", "two"):
        sending.offer(at(0), what, partial(send, what))
    thread.shutdown()
    assert begun == {"one"}
    assert sending.collect(at(0))
    assert not sending.collect(at(0)), "once"


def test_long_work_is_interrupted_when_its_process_ends() -> None:
    thread, has_begun, begun = SingleThreadExecutor("training"), threading.Event(), []

    def train() -> None:
        has_begun.set()
        while True:
            torch.ones(8).sum()

    pending = thread.submit(train)
    thread.submit(lambda: begun.append("measuring"))
    assert has_begun.wait(PATIENCE_SECONDS)
    thread.interrupt()
    thread.interrupt()
    assert thread.has_ended(PATIENCE_SECONDS)
    assert isinstance(pending.exception(0), TaskInterrupt)
    assert begun == []


def test_a_failed_batch_is_a_trouble_of_sending_alone() -> None:
    failures = FailureTracker(Random(1))
    sending = TransactionSender(ImmediateExecutor(), failures)
    sending.offer(at(0), "it", failing)
    assert not sending.collect(at(0))
    assert set(failures.ongoing) == {WorkPart.SENDING}
    sending.offer(at(0.001), "it", lambda: True)
    assert not sending.collect(at(0.001)), "not before its time"
    sending.offer(at(9), "it", lambda: True)
    assert sending.collect(at(9))


def test_a_transaction_is_sent_once_a_block_unless_failed() -> None:
    sending, sent = TransactionSender(ImmediateExecutor(), FailureTracker(Random(1))), []

    def take(what: str) -> bool:
        sent.append(what)
        return False

    def offer(second: float, block: bytes, what: str) -> None:
        sending.offer(at(second), what, partial(take, what), (block, what))
        assert not sending.collect(at(second))

    for second in range(3):
        offer(second, b"7", "one")
        offer(second, b"7", "two")
    assert sent == ["one", "two"]
    offer(3, b"8", "one")
    assert sent == ["one", "two", "one"]
    sending.offer(at(4), "three", failing, (b"8", "three"))
    assert not sending.collect(at(4))
    offer(9, b"8", "three")
    assert sent[3:] == ["three"]


MODEL = np.zeros(4, "<f4")
CLIENTS = tuple(map(ClientId, range(10)))


class Fragile(Engine):
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
    return {
        int(client): set(np.frombuffer(update.data, "<f4").tolist())
        for client, update in training.held.items()
    }


@pytest.mark.parametrize("lonely", [{3}, {0, 9}, {4, 5, 6}])
def test_a_client_failing_in_the_model_blocks_no_other_update(tmp_path: Path, lonely: Any) -> None:
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
