"""Decided rounds in processes, while this one replays the chain; what they find comes in order.

A worker gets some rounds in a row, and reads the model that the first of them begins with. Where
that is not to be had, one process may still know it, having followed the model from before: so such
rounds are checked here, from the rounds before them on, and the report is the same byte for byte.

The first rounds are checked here, for as long as processes take to begin: a short run begins none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from ledger.audit.checks.common import CheckResult
from ledger.audit.round_checker import CheckedRound, Milestone, RoundChecker, RoundTask
from ledger.distances.fast import fast_distances
from ledger.io.processes import worker_pool
from ledger.protocol.rules.distance import Distances
from ledger.storage.blobs import BlobReader

ROUND_BYTES = 3_000_000
"""What the rest of a round takes beside its blobs, as so many bytes of them."""
ROUNDS_PER_BATCH = 4
"""Rounds in a row that a process is given."""
MAX_WAITING_BATCHES = 3
"""For each process, batches that are begun and not yet taken: more are not replayed ahead."""

ReadItem: TypeAlias = CheckResult | RoundTask | Milestone
CheckedItem: TypeAlias = CheckResult | CheckedRound | Milestone


WORKER_START_BYTES = 500_000_000
"""Bytes of blobs whose checking takes as long as processes take to begin."""


@dataclass(frozen=True, slots=True)
class AuditWorkers:
    """Processes that check rounds while another one replays the chain.

    Each of them holds the blobs of a round.

    Attributes:
        processes: how many, at least 1.
        blobs: opens the blobs in such a process; a function of a module, or a class, with its
            arguments bound by `functools.partial`.
        begin_after: bytes of blobs that are checked before the first of them begins.
    """

    processes: int
    blobs: Callable[[], BlobReader]
    start_after_bytes: int = WORKER_START_BYTES


@dataclass
class _Batch:
    """Rounds in a row for one process."""

    tasks: list[RoundTask] = field(default_factory=list)
    future: Future[list[CheckedRound] | None] | None = None
    found: list[CheckedRound] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a round's results among what was read."""

    batch: _Batch
    number: int


@contextmanager
def parallel_checks(
    workers: AuditWorkers,
    distances: Distances | None,
    rules: tuple[str, ...],
    here: RoundChecker,
    fresh: Callable[[], RoundChecker],
) -> Iterator[Callable[[Iterator[ReadItem]], Iterator[CheckedItem]]]:
    """Open processes that check rounds; all end with the context.

    Args:
        distances: how true distances are computed; None for the fastest on one core.
        rules: files or packages of own rules that the auditor names.
        fresh: makes another such, for rounds that no worker can check.

    Yields:
        What puts in the place of each decided round what was found of it.
    """
    given = workers.blobs, distances, rules
    with worker_pool(workers.processes, _Worker.begin, given) as pool:
        yield _InOrder(pool, workers, here, fresh).told


class _InOrder:
    """Hands decided rounds to processes, and everything on in the order in which it was seen."""

    def __init__(
        self,
        pool: ProcessPoolExecutor,
        workers: AuditWorkers,
        here: RoundChecker,
        fresh: Callable[[], RoundChecker],
    ) -> None:
        self._pool = pool
        self._most = MAX_WAITING_BATCHES * workers.processes
        self._left_here = workers.start_after_bytes
        self._here = here
        self._fresh = fresh
        self._reached: _Batch | None = None  # by what checks rounds here
        self._before: _Batch | None = None  # what was taken last
        self._filling = _Batch()
        self._running = 0
        self._queue: deque[CheckedItem | _Place] = deque()

    def told(self, seen: Iterator[ReadItem]) -> Iterator[CheckedItem]:
        """Yield all that was seen, with what was found of decided rounds in their place."""
        for one in seen:
            self._queue.append(self._placed(one) if isinstance(one, RoundTask) else one)
            yield from self._ready(self._most)
        self._hand_over()
        yield from self._ready(0)

    def _placed(self, task: RoundTask) -> CheckedRound | _Place:
        if self._left_here > 0:
            return self._first_here(task)
        batch = self._filling
        batch.tasks.append(task)
        place = _Place(batch, len(batch.tasks) - 1)
        if len(batch.tasks) == ROUNDS_PER_BATCH:
            self._hand_over()
        return place

    def _first_here(self, task: RoundTask) -> CheckedRound:
        found = self._here.check(task)
        self._left_here -= found.bytes_read + ROUND_BYTES
        self._reached = self._before = _Batch([task])
        return found

    def _hand_over(self) -> None:
        batch, self._filling = self._filling, _Batch()
        if batch.tasks:
            batch.future = self._pool.submit(_Worker.check, batch.tasks)
            self._running += 1

    def _ready(self, most: int) -> Iterator[CheckedItem]:
        """Yield from the front what is known, and wait for it while too much is under way."""
        while self._queue:
            front = self._queue[0]
            if not isinstance(front, _Place):
                yield front
            elif front.batch.found is not None or self._is_due(front.batch, most):
                yield self._found(front.batch)[front.number]
            else:
                return
            self._queue.popleft()

    def _is_due(self, batch: _Batch, most: int) -> bool:
        return batch.future is not None and (batch.future.done() or self._running > most)

    def _found(self, batch: _Batch) -> list[CheckedRound]:
        if batch.found is None:
            assert batch.future is not None, "only what was handed over is due"
            found = batch.future.result()
            batch.found = self._found_here(batch) if found is None else found
            self._before = batch
            self._running -= 1
        return batch.found

    def _found_here(self, batch: _Batch) -> list[CheckedRound]:
        """Return what is found of rounds whose first model only who was there before can know."""
        if self._reached is not self._before:
            self._here = self._fresh()
            for task in self._before.tasks if self._before is not None else ():
                self._here.check(task)
        self._reached = batch
        return [self._here.check(task) for task in batch.tasks]


class _Worker:
    """State of a worker process between batches."""

    blobs: ClassVar[BlobReader]
    distances: ClassVar[Distances]
    rules: ClassVar[tuple[str, ...]]

    @classmethod
    def begin(
        cls, blobs: Callable[[], BlobReader], distances: Distances | None, rules: tuple[str, ...]
    ) -> None:
        cls.rules = rules
        cls.blobs = blobs()
        cls.distances = fast_distances(1) if distances is None else distances

    @classmethod
    def check(cls, tasks: list[RoundTask]) -> list[CheckedRound] | None:
        """Return what is found of rounds in a row; None if the first one's model is not there."""
        checker = RoundChecker(cls.blobs, cls.distances, rules=cls.rules)
        if checker.start_from(tasks[0]) is not None:
            return None
        return [checker.check(task) for task in tasks]
