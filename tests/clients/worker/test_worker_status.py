"""What a worker tells of itself, and what it does with what goes wrong."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from clients.worker.background import (
    BACKOFF,
    MOST_FAILURES,
    FailureTracker,
    LocalUpdates,
    Moment,
    RestartingEngine,
    RoundTraining,
    SingleThreadExecutor,
    TaskInterrupt,
    TrainingAssignment,
    TransactionSender,
    WorkPart,
)
from clients.worker.process import LogFormat, Startup, logging_to
from clients.worker.status import (
    StatusFile,
    WorkerCounters,
    WorkerFolder,
    WorkerMetrics,
    WorkerState,
    read_status,
    serve_metrics,
    worker_status,
)
from ledger.chain.ports import NotServedError
from ledger.io.home import Disk
from ledger.io.retry import Backoff
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import ClientId, Digest
from tests.clients.worker.together import ROOMY, QuickDisk, Together, hosted_by
from tests.patience import PATIENCE_SECONDS
from tests.support.executors import ImmediateExecutor
from tests.support.keys import DOMAIN


def test_a_status_tells_roles_and_where_the_worker_is(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(1))
    together.step(0)
    together.step(0)
    counts = WorkerCounters()
    counts.look(together.worker(0))
    counts.look(together.worker(0))
    status = worker_status(together.worker(0), counts, WorkerState.RUNNING, "0xabc")
    roles = [role["role"] for role in status["roles"].values()]
    assert (roles.count("member"), roles.count("trainer"), roles.count("idle")) == (5, 7, 2)
    assert status["round"] == 1
    assert status["head"] == f"0x{together.ledger.state().head.hex()}"
    assert status["counts"]["commitments"] == 12, "counted once, however often one looks"
    assert status["view"] == {"phase": 1, "view": None}
    assert json.loads(json.dumps(status)) == status


def test_a_status_is_written_when_it_changes_and_read_back(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    file.write({"format": 1, "round": 1}, at=1.0)
    file.write({"format": 1, "round": 1}, at=2.0)
    assert read_status(tmp_path / "status.json")["at"] == 1.0
    file.write({"format": 1, "round": 2}, at=3.0)
    assert read_status(tmp_path / "status.json")["at"] == 3.0
    (tmp_path / "status.json").write_text('{"format": 9}')
    with pytest.raises(ConfigurationError, match="is not a status"):
        read_status(tmp_path / "status.json")


def test_a_folder_is_its_owner_s_and_held_by_one(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path / "own")
    assert not folder.is_held()
    with folder.held():
        assert folder.is_held()
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        with pytest.raises(ConfigurationError, match="one folder for each worker"), folder.held():
            pass
    assert not folder.is_held()


def test_what_killed_workers_were_writing_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path / "own")
    folder.payloads.mkdir(parents=True)
    for one in (folder.path, folder.payloads):
        Disk().create(one, b"half an update")
    (folder.payloads / "kept.update").write_bytes(b"whole")
    with pytest.raises(ConfigurationError), folder.held(), folder.held():
        pass
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"worker.lock", "kept.update"}


@pytest.mark.parametrize("style", [*LogFormat])
def test_a_log_is_one_line_an_event(style: LogFormat) -> None:
    stream = io.StringIO()
    with logging_to(stream, style):
        logging.getLogger("clients.worker").info("round %d\nbegins", 3, extra={"round": 3})
        logging.getLogger("elsewhere").info("nothing of ours")
    (line,) = stream.getvalue().splitlines()
    if style is LogFormat.JSON:
        told = json.loads(line)
        assert (told["event"], told["round"], told["level"]) == ("round 3\nbegins", 3, "info")
    else:
        assert line.endswith("info    round 3 begins")


@pytest.mark.parametrize("style", [*LogFormat])
def test_a_log_holds_nothing_that_a_terminal_obeys(style: LogFormat) -> None:
    stream = io.StringIO()
    with logging_to(stream, style):
        # Clears the screen, names the window, turns the line round, and ends in half a character.
        logging.getLogger("clients.worker").warning("%s", "\x1b[2J\x1b]0;x\x07\u202e\x9b\udc80 é")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    if style is LogFormat.TEXT:
        assert line.endswith(r"\x1b[2J\x1b]0;x\x07\u202e\x9b\udc80 é")


def test_prometheus_reads_what_was_counted(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(1), ROOMY)
    together.step(0)
    worker = together.worker(0)
    counts = WorkerCounters(commitments=12)
    with serve_metrics(WorkerMetrics(worker, counts, lambda: 1000.0), 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        text = httpx.get(url, timeout=PATIENCE_SECONDS).text
        rebound = httpx.get(url, headers={"Host": "a.example"}, timeout=PATIENCE_SECONDS)
    assert (rebound.status_code, "commitments" in rebound.text) == (421, False)
    assert "cmfl_worker_commitments_total 12.0" in text
    assert 'cmfl_worker_errors_total{part="chain"} 0.0' in text
    assert "cmfl_worker_behind_seconds" in text


class Node:
    def __init__(self, tries: int) -> None:
        self.left = tries

    def answer(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise NotServedError("http://127.0.0.1:1: unreachable")
        return "there"


def test_what_it_waits_for_is_in_its_status(tmp_path: Path) -> None:
    folder, waited = WorkerFolder(tmp_path), list[float]()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    starting = Startup(folder, wait, lambda: 7.0)
    assert starting.retry_until_ready(Node(3).answer, Backoff(0.25, longest_seconds=0.5)) == "there"
    assert sum(waited) == pytest.approx(0.25 + 0.5 + 0.5)
    said = read_status(folder.status)
    assert (said["stand"], said["pid"], said["round"]) == ("starting", os.getpid(), None)
    assert said["troubles"]["starting"] == {"says": "http://127.0.0.1:1: unreachable", "times": 3}


def test_a_starting_worker_asked_to_leave_leaves_at_once(tmp_path: Path) -> None:
    folder, waits = WorkerFolder(tmp_path), list[float]()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        folder.leave.touch()
        return False

    assert Startup(folder, wait, lambda: 7.0).retry_until_ready(Node(1000).answer) is None
    assert len(waits) == 1
    assert read_status(folder.status)["stand"] == "ended"
    assert not folder.leave.exists(), "whoever begins it again has not asked it to leave"


def test_a_restarted_worker_was_not_asked_to_leave(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    with folder.held():
        folder.leave.touch()
        # Killed before it could: the file outlives it.
        with pytest.raises(ConfigurationError), folder.held():
            pass
        assert folder.leave.exists(), "who is refused takes nothing back"
    with folder.held():
        assert not folder.leave.exists()


def test_a_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    assert folder.holder() is None
    with folder.held():
        assert folder.holder() == os.getpid()
        folder.lock.write_bytes(b"")  # it has just been made
        assert folder.holder() is None
    folder.lock.write_bytes(b"17\n")
    assert folder.holder() is None, "nobody holds it"


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
