"""Time, failures and background work of a worker: training, sending and measuring.

A silent node, a full disk, an account without funds: none of them ends a worker or stops its other
work. Each part is retried separately, so that many workers do not come back at the same time.
Training and sending run in threads, since votes are due meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import re
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from clients.training.port import (
    Engine,
    Evaluation,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from ledger.chain.finality import LatestBlock
from ledger.chain.ports import Block
from ledger.io.home import DISK, Disk, read_file
from ledger.io.retry import Backoff
from ledger.protocol import canonical
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import CmflError
from ledger.protocol.inputs import training_seed
from ledger.protocol.payloads import Payload
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by this machine's clocks: Unix seconds, and monotonic seconds."""

    wall: float
    steady: float


COUNTED_BLOCKS = 16


class ChainClock:
    """An estimate of the chain's time: no clock is trusted.

    It is never behind a seen block, never goes back, and advances by the machine's steady clock.
    Two times may be far in the future and are forgotten: a dropped block's, the wall clock's.

    The offset to the steady clock comes from the newest `COUNTED_BLOCKS`: the block seen soonest
    after its time stamp. A block with its parent's second does not count, since a node whose clock
    was set back gives all blocks one date. Before the first such block the wall clock counts.
    """

    def __init__(self) -> None:
        self._newest: Block | None = None
        self._latest = LatestBlock()
        # Offsets of the chain's seconds to the steady ones: by the first block seen, whose age is
        # unknown, and by later ones.
        self._at_first = float("-inf")
        self._ahead: deque[float] = deque(maxlen=COUNTED_BLOCKS)
        self._last = float("-inf")

    def see(self, newest: Block, moment: Moment) -> None:
        if self._latest.is_gone(newest):
            self._ahead.clear()
            self._at_first = self._last = float("-inf")
        if self._newest is None:
            self._at_first = newest.timestamp - moment.steady
        elif newest.timestamp != self._newest.timestamp:
            if not self._ahead:
                self._last = float("-inf")  # it may have been a wall clock's
            self._ahead.append(newest.timestamp - moment.steady)
        self._newest = newest

    def now(self, moment: Moment) -> float:
        if self._ahead:
            estimate = max(self._ahead) + moment.steady
        else:
            estimate = max(moment.wall, self._at_first + moment.steady)
        self._last = max(self._last, estimate)
        return self._last


T = TypeVar("T")

_log = logging.getLogger(__name__)


class WorkPart(StrEnum):
    """A part of a worker's work that is retried on its own."""

    CHAIN = "chain"
    MODEL = "model"
    TRAINING = "training"
    SENDING = "sending"
    VOTING = "voting"
    MEASURING = "measuring"


# Votes are due in seconds, and funds are not: polling soon costs nothing.
BACKOFF = {
    WorkPart.CHAIN: Backoff(0.25, longest_seconds=4),
    WorkPart.MODEL: Backoff(0.25, longest_seconds=4),
    WorkPart.TRAINING: Backoff(0.25, longest_seconds=15),
    WorkPart.SENDING: Backoff(0.25, longest_seconds=30),
    WorkPart.VOTING: Backoff(0.25, longest_seconds=4),
    WorkPart.MEASURING: Backoff(0.25, longest_seconds=30),
}


@dataclass(frozen=True, slots=True)
class OngoingFailure:
    """A failure without a success since."""

    sentence: str
    times: int
    until: float


@dataclass(slots=True)
class FailureTracker:
    """Failures by part of the work, and when each part is due again."""

    rng: Random
    ongoing: dict[WorkPart, OngoingFailure] = field(default_factory=dict)
    counts: Counter[WorkPart] = field(default_factory=Counter)
    last: str | None = None

    def is_waiting(self, part: WorkPart, moment: Moment) -> bool:
        failure = self.ongoing.get(part)
        return failure is not None and moment.steady < failure.until

    def attempt(self, part: WorkPart, moment: Moment, task: Callable[[], T]) -> T | None:
        """Return a task's result; None if it fails or is not due yet."""
        if self.is_waiting(part, moment):
            return None
        try:
            result = task()
        except (CmflError, OSError) as error:
            self.record_failure(part, moment, error)
            return None
        self.record_success(part)
        return result

    def record_failure(self, part: WorkPart, moment: Moment, error: Exception) -> None:
        sentence = str(error)[:500]
        before = self.ongoing.get(part)
        times = 1 if before is None else before.times + 1
        until = moment.steady + BACKOFF[part].pause(times) * self.rng.uniform(0.5, 1.0)
        self.ongoing[part] = OngoingFailure(sentence, times, until)
        self.counts[part] += 1
        self.last = f"{part}: {sentence}"
        if before is None or before.sentence != sentence:
            _log.warning("%s: %s", part, sentence, extra={"part": str(part)})

    def record_success(self, part: WorkPart) -> None:
        failure = self.ongoing.pop(part, None)
        if failure is not None:
            extra = {"part": str(part), "failures": failure.times}
            _log.warning("%s: works again after %d failures", part, failure.times, extra=extra)


P = ParamSpec("P")


class TaskInterrupt(BaseException):
    """Raised in a task whose process ends."""


class SingleThreadExecutor(Executor):
    """Runs tasks in order in a thread that does not delay the end of the process."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_busy = self._is_interrupted = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        pending: Future[T] = Future()

        def carry_out() -> None:
            try:
                result = task(*arguments, **named)
            except BaseException as error:  # noqa: BLE001 - raised by the future's result
                pending.set_exception(error)
            else:
                pending.set_result(result)

        self._waiting.put(carry_out)
        return pending

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        self._waiting.put(None)
        if wait:
            self._thread.join()

    def interrupt(self) -> None:
        """End the thread at its next line of Python: no process may end while torch runs."""
        if self._is_interrupted:
            return
        self._is_interrupted = True
        self._waiting.put(None)
        if self._is_busy:
            number = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(TaskInterrupt))

    def has_ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        with suppress(TaskInterrupt):
            while (task := self._waiting.get()) is not None and not self._is_interrupted:
                self._is_busy = True
                task()
                self._is_busy = False


class TransactionSender:
    """Sends batches of transactions in a background thread, one batch at a time.

    The next step offers a batch again until its effect is on the chain, so that nothing old is ever
    sent. Whether a transaction is useful follows from the chain: a batch is sent once at a block.
    """

    def __init__(self, executor: Executor, failures: FailureTracker) -> None:
        self._executor, self._failures = executor, failures
        self._running: tuple[str, Future[bool]] | None = None
        self._block: bytes | None = None
        self._tried: list[object] = []

    def offer(
        self,
        moment: Moment,
        what: str,
        task: Callable[[], bool],
        about: tuple[bytes, object] | None = None,
    ) -> None:
        """Send a batch, unless another one is being sent or has just failed.

        `about` is the hash of the newest block and the batch, which is sent once at a block.
        """
        if self._running is not None or self._failures.is_waiting(WorkPart.SENDING, moment):
            return
        if about is not None:
            block, sent = about
            if block != self._block:
                self._block, self._tried = block, []
            if sent in self._tried:
                return
            self._tried.append(sent)
        self._running = what, self._executor.submit(task)

    def collect(self, moment: Moment) -> bool:
        if self._running is None or not self._running[1].done():
            return False
        (what, running), self._running = self._running, None
        try:
            has_effect = running.result()
        except (CmflError, OSError) as error:
            self._tried = []
            self._failures.record_failure(WorkPart.SENDING, moment, error)
            return False
        self._failures.record_success(WorkPart.SENDING)
        if has_effect:
            _log.info("the chain accepted %s", what, extra={"sent": what})
        return has_effect


class RestartingEngine(Engine):
    """Delegates to an engine, and replaces it after a failure, which ends all its processes.

    A process that the system kills for its memory must not cost the clients all further rounds. Not
    safe for several threads, except `distances`.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open = open_engine
        self._engine = open_engine()
        self._has_failed = self._is_closed = False
        self.distances = self._engine.distances

    def train(self, start: NDArray[np.float32], jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        return self._tried(lambda engine: engine.train(start, jobs))

    def evaluate(self, vector: NDArray[np.float32], sets: Sequence[str]) -> PendingEvaluation:
        return self._tried(lambda engine: engine.evaluate(vector, sets))

    def interrupt(self) -> None:
        """End the engine's processes, so that training fails; the training thread closes it."""
        self._is_closed = True
        for process in getattr(self._engine, "processes", ()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def close(self) -> None:
        self._is_closed = True
        self._engine.close()

    def _tried(self, task: Callable[[Engine], T]) -> T:
        """Return a task's result; after a failure the next one goes to a new engine."""
        if self._is_closed:
            raise TrainingError("the worker is stopping and does not train")
        if self._has_failed:
            self._engine.close()
            self._engine = self._open()
            self._has_failed = False
        try:
            return task(self._engine)
        except TrainingError:
            self._has_failed = True
            raise


_NAME = re.compile(
    r"([0-9]{1,20})-([0-9]{1,10})-([0-9a-f]{64})-([0-9a-f]{64})(?:-([0-9a-f]{64}))?\.update"
)

TrainingResult = tuple[list[TrainedUpdate], TrainingError | None]
"""The updates that there are, and why there are no more of them."""

MOST_FAILURES = 4  # failed clients in one attempt after which the others wait for the next one


class LocalUpdates:
    """Durable updates by round, client and origin, written before their commitments are sent.

    Until the closing block only the client has its update, and must not lose it. Each file name has
    the update's digest, so that a damaged one is trained again, and its environment.
    """

    def __init__(self, folder: Path, environment: Digest = NO_DIGEST, *, disk: Disk = DISK) -> None:
        self._folder, self._environment, self._disk = folder, environment, disk

    def find(
        self, round_number: int, client: ClientId, origin: Digest, limit: int
    ) -> Payload | None:
        prefix = f"{round_number}-{client}-{origin.hex()}-"
        for path, match in self._kept():
            if not path.name.startswith(prefix) or path.stat().st_size > limit:
                continue
            payload = Payload.of(read_file(path, limit))
            if payload.digest.hex() == match[4]:
                return payload
        return None

    def is_of_this_environment(self, round_number: int, client: ClientId) -> bool:
        named = (str(round_number), str(client), self._environment.hex())
        return any(match.group(1, 2, 5) == named for _, match in self._kept())

    def keep(self, round_number: int, origin: Digest, updates: Mapping[ClientId, Payload]) -> None:
        paths = []
        for client, update in updates.items():
            name = f"{round_number}-{client}-{origin.hex()}-{update.digest.hex()}"
            paths.append(self._folder / f"{name}-{self._environment.hex()}.update")
            self._disk.write_whole(paths[-1], update.data, durable=False)
        if paths:
            self._disk.sync(paths)

    def forget(self, before_round: int) -> None:
        for path, match in self._kept():
            if int(match[1]) < before_round:
                self._disk.remove(path)

    def _kept(self) -> list[tuple[Path, re.Match[str]]]:
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        return [(path, match) for path in paths if (match := _NAME.fullmatch(path.name))]


@dataclass(frozen=True, eq=False)
class TrainingAssignment:
    """The training of a worker's active clients, ascending, from the model w_t of a round."""

    domain: Domain
    round: int
    seed: Digest
    model: NDArray[np.float32]
    clients: tuple[ClientId, ...]
    payload_bytes: int

    @cached_property
    def origin(self) -> Digest:
        """The digest of everything that an update depends on, except data and code."""
        where = [self.domain.chain_id, self.domain.contract, self.domain.salt, self.round]
        came_from = [*where, self.seed, sha256(vector_bytes(self.model))]
        return sha256(canonical.encode({"origin": came_from}))


class RoundTraining:
    """Trains what is assigned and not stored, also if the samples of one client fail."""

    def __init__(self, engine: Engine, own: LocalUpdates, executor: Executor) -> None:
        self._engine, self._own, self._executor = engine, own, executor
        self._about: TrainingAssignment | None = None
        self.held: dict[ClientId, Payload] = {}
        self._running: tuple[TrainingAssignment, Future[TrainingResult]] | None = None
        self._failures: Counter[int] = Counter()

    @property
    def is_busy(self) -> bool:
        return self._running is not None and not self._running[1].done()

    def updates(self, assigned: TrainingAssignment) -> Mapping[ClientId, Payload] | None:
        """Return the durable update of every assigned client; None while they are being trained."""
        if assigned is not self._about:
            number, clients = assigned.round, assigned.clients
            limit, find = assigned.payload_bytes, self._own.find
            stored = {c: find(number, c, assigned.origin, limit) for c in clients}
            self.held = {client: update for client, update in stored.items() if update is not None}
            self._own.forget(number)
            self._about = assigned
        missing = [client for client in assigned.clients if client not in self.held]
        if not missing:
            return self.held
        if self._running is None:
            jobs = [TrainingJob(int(c), training_seed(assigned.seed, c)) for c in missing]
            self._running = assigned, self._executor.submit(self._trained, assigned.model, jobs)
        running_assignment, running = self._running
        if not running.done():
            return None
        if running_assignment is not assigned or running.exception() is not None:
            self._running = None  # of a round that is over, or to be tried again
        if running_assignment is not assigned:
            return self.updates(assigned)
        trained, error = running.result()
        by_client = {int(client): client for client in assigned.clients}
        updates = {by_client[update.client]: update.payload for update in trained}
        self._own.keep(assigned.round, assigned.origin, updates)
        self.held |= updates
        self._running = None
        if error is not None:
            raise error
        return self.held

    def forget(self) -> None:
        """Release the updates: the engine reuses their memory."""
        self._about, self.held = None, {}

    def _trained(self, model: NDArray[np.float32], jobs: list[TrainingJob]) -> TrainingResult:
        """Train all clients together; after a failure, one by one."""
        alone = [job for job in jobs if self._failures[job.client]]
        batch = [job for job in jobs if not self._failures[job.client]]
        updates: list[TrainedUpdate] = []
        failed: TrainingError | None = None
        try:
            updates = self._engine.train(model, batch) if batch else []
        except TrainingError as error:
            alone, failed = [*batch, *alone], error
        if alone:
            # Memory of their own: the next call of the engine overwrites what it has returned.
            updates = [update.copy() for update in updates]
        left = MOST_FAILURES
        for job in sorted(alone, key=lambda job: self._failures[job.client]):
            try:
                (update,) = self._engine.train(model, [job])
            except TrainingError as error:
                failed, left = error, left - 1
                self._failures[job.client] += 1
                if not left:
                    break
            else:
                self._failures.pop(job.client, None)
                updates.append(update.copy())
        # If all have been trained alone after a failure of the batch, nothing is tried again.
        return updates, failed if len(updates) < len(jobs) else None


class BackgroundEvaluator:
    """Evaluates each round's model once on local samples, in the training thread after training."""

    def __init__(self, engine: Engine, samples: str | None, executor: Executor) -> None:
        self._engine, self._samples, self._executor = engine, samples, executor
        self._running: tuple[int, Future[Evaluation]] | None = None
        self._begun = 0
        self.newest: dict[str, float | None] | None = None

    def look(self, round_number: int, model: NDArray[np.float32]) -> bool:
        """Start or collect the evaluation of a round's model w_t; True if none is running."""
        if self._running is not None and self._running[1].done():
            (number, running), self._running = self._running, None
            evaluation = running.result()
            quality = {"accuracy": evaluation.accuracy, "loss": evaluation.mean_loss}
            self.newest = {"round": number, **quality}
        samples = self._samples
        if samples is not None and self._running is None and self._begun != round_number:
            self._begun = round_number
            pending = self._executor.submit(lambda: self._engine.evaluate(model, [samples])()[0])
            self._running = round_number, pending
        return self._running is None
