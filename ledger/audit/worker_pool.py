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
    """Rounds in a row for one process, with what was read between them."""

    items: list[ReadItem] = field(default_factory=list)
    future: Future[list[CheckedRound] | None] | None = None

    @property
    def tasks(self) -> list[RoundTask]:
        return [item for item in self.items if isinstance(item, RoundTask)]


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
    """Hands decided rounds to processes, and everything on in the order in which it was read."""

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
        self._before: list[RoundTask] = []  # what was checked last
        self._is_here = True  # whether it was checked in this process
        self._filling = _Batch()
        self._running: deque[_Batch] = deque()

    def told(self, seen: Iterator[ReadItem]) -> Iterator[CheckedItem]:
        """Yield all that was read, with the results of decided rounds in their place."""
        for item in seen:
            if self._left_here > 0:
                yield self._first_here(item) if isinstance(item, RoundTask) else item
                continue
            self._filling.items.append(item)
            if len(self._filling.tasks) == ROUNDS_PER_BATCH:
                self._hand_over()
            yield from self._ready(self._most)
        self._hand_over()
        yield from self._ready(0)

    def _first_here(self, task: RoundTask) -> CheckedRound:
        found = self._here.check(task)
        self._left_here -= found.bytes_read + ROUND_BYTES
        self._before = [task]
        return found

    def _hand_over(self) -> None:
        batch, self._filling = self._filling, _Batch()
        if batch.tasks:
            batch.future = self._pool.submit(_Worker.check, batch.tasks)
        self._running.append(batch)

    def _ready(self, most: int) -> Iterator[CheckedItem]:
        """Yield from the front what is known, and wait for it while too much is under way."""
        while self._running:
            future = self._running[0].future
            if future is not None and not future.done() and len(self._running) <= most:
                return
            batch = self._running.popleft()
            found = iter(self._found(batch))
            for item in batch.items:
                yield next(found) if isinstance(item, RoundTask) else item

    def _found(self, batch: _Batch) -> list[CheckedRound]:
        found = [] if batch.future is None else batch.future.result()
        is_here = found is None
        if found is None:
            found = self._found_here(batch.tasks)
        self._before, self._is_here = batch.tasks, is_here
        return found

    def _found_here(self, tasks: list[RoundTask]) -> list[CheckedRound]:
        """Return the results of rounds whose first model is known only by checking from before."""
        if not self._is_here:
            self._here = self._fresh()
            for task in self._before:
                self._here.check(task)
        return [self._here.check(task) for task in tasks]


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
