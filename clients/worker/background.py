"""Time, failures and background work of a worker.

A silent node, a full disk, an account without funds: none of them ends a worker or stops its other
work. Each part is retried separately, so that many workers do not come back at the same time.
Training and sending run in threads, since votes are due meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.chain.finality import LatestBlock
from ledger.chain.ports import Block
from ledger.io.retry import Backoff
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from clients.training.port import Engine, Evaluation


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by this machine's clocks: Unix seconds, and monotonic seconds."""

    wall: float
    steady: float


COUNTED_BLOCKS = 16


class ChainClock:
    """An estimate of the chain's time.

    No clock is trusted. The estimate is never behind a block that was seen, never goes back, and
    advances between blocks by the machine's steady clock. It forgets the time of a block that the
    chain has dropped: one time stamp of the far future would keep a worker in the last view of
    every round.

    The offset to the steady clock comes from the newest `COUNTED_BLOCKS`: the block seen soonest
    after its time stamp. Older ones do not count, since a chain may fall behind wall clocks slowly.
    A block with its parent's second does not count either: a node whose clock was set back dates
    all blocks alike until that has caught up. Before the first such block the wall clock counts;
    its estimate is dropped then, since it may be set wrong.
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
        """Count a failure, log it if it is new, and set the next attempt."""
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
        """End a part's failure, if there is one, and log that it works again."""
        failure = self.ongoing.pop(part, None)
        if failure is not None:
            _log.warning(
                "%s: works again after %d failures",
                part,
                failure.times,
                extra={"part": str(part), "failures": failure.times},
            )


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
        """End the thread after its queued tasks, and wait for that if asked to."""
        self._waiting.put(None)
        if wait:
            self._thread.join()

    def interrupt(self) -> None:
        """End the thread without its queued tasks, at the next line of Python that it runs.

        A process that ends while a thread of it is in torch is aborted by the C++ runtime.
        """
        if self._is_interrupted:
            return
        self._is_interrupted = True
        self._waiting.put(None)
        if self._is_busy:
            number = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(TaskInterrupt))

    def has_ended(self, seconds: float) -> bool:
        """Wait up to this many seconds; return whether the thread has ended."""
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
        """Use an executor of one thread, and report failures to the tracker."""
        self._executor = executor
        self._failures = failures
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

        Args:
            task: sends the batch; returns whether that had an effect.
            about: hash of the chain's newest block, and the batch; None to send always.
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
        """Return whether a batch was sent with an effect since the last call."""
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
            _log.info("the chain took %s", what, extra={"sent": what})
        return has_effect


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """Quality of the model at a round's start; see `Evaluation`."""

    round: int
    accuracy: float | None
    loss: float | None


class BackgroundEvaluator:
    """Evaluates each round's model once on local samples, in the training thread after training."""

    def __init__(self, engine: Engine, samples: str | None, executor: Executor) -> None:
        """Prepare evaluations on a named set of samples; None for no evaluation."""
        self._engine = engine
        self._samples = samples
        self._executor = executor
        self._running: tuple[int, Future[Evaluation]] | None = None
        self._begun = 0
        self.newest: MeasuredModel | None = None

    def look(self, round_number: int, model: NDArray[np.float32]) -> bool:
        """Start or collect the evaluation of a round's model w_t; True if none is running."""
        if self._running is not None and self._running[1].done():
            (number, running), self._running = self._running, None
            evaluation = running.result()
            self.newest = MeasuredModel(number, evaluation.accuracy, evaluation.mean_loss)
        samples = self._samples
        if samples is not None and self._running is None and self._begun != round_number:
            self._begun = round_number
            pending = self._executor.submit(lambda: self._engine.evaluate(model, [samples])()[0])
            self._running = round_number, pending
        return self._running is None
