"""What goes wrong is said once, counted, and tried again after pauses that grow and are bounded."""

from __future__ import annotations

import logging
import threading
from functools import partial
from random import Random

import pytest
import torch

from clients.worker.background_work import SingleThreadExecutor, TaskInterrupt, TransactionSender
from clients.worker.chain_clock import Moment
from clients.worker.failures import BACKOFF, FailureTracker, WorkPart
from ledger.protocol.errors import ChainError
from tests.patience import PATIENCE_SECONDS
from tests.support.executors import ImmediateExecutor


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
