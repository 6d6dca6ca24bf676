"""Child processes that compute for this one and end with it: pools, and single children.

They are spawned, not forked: threads of this process cannot leave locks behind in them, and some
need environment variables from their first instruction on.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any, ClassVar, Generic, TypeVar

from ledger.protocol.errors import CmflError

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = TypeVar("Report")

_SPAWN = multiprocessing.get_context("spawn")
_POLL_SECONDS = 0.1
_OF_TERMINAL = {signal.SIGINT, signal.SIGHUP}


class ChildEndedError(CmflError):
    """A child process ended before its work was done."""

    def __init__(self) -> None:
        super().__init__(
            "a process ended before its work was done: it was killed, or the machine ran out of "
            "memory"
        )


class StoppedError(Exception):
    """The caller was interrupted; raised inside a task by its next report."""


def follow_parent() -> None:
    """End this process with its parent, and leave interrupts to the parent."""
    # Ctrl-C and HUP reach every process of the terminal; the parent decides what they mean.
    for number in _OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    # Locks that libraries make (tqdm, for torch.fx) have no name that way: a killed process would
    # leave it behind, and the resource tracker complain.
    multiprocessing.set_start_method("fork", force=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A pool's workers wait for ever on a queue that they keep open themselves, so that a parent
    # killed outright would leave them behind.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that no interrupt of the terminal reaches, not even while they import.

    Blocked and not ignored: an interrupt that comes meanwhile waits for this process.
    """
    resource_tracker.ensure_running()  # which would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A child process and the connection to it.

    Attributes:
        connection: this end of the pipe; the child has the other one.
    """

    process: SpawnProcess
    connection: Connection[Any, Any]

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def exit_code(self, seconds: float) -> int | None:
        """Wait for its end; return its exit code, None if it is still alive."""
        self.process.join(seconds)
        return self.process.exitcode

    def close(self, grace_seconds: float = 0.0) -> None:
        """Terminate it, kill it after the grace period, and release what it holds here."""
        if grace_seconds:
            self.process.terminate()
            self.process.join(grace_seconds)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def start_child(
    target: Callable[..., None], *arguments: object, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a process.

    Args:
        target: function of a module; called with the arguments and the child's connection. It
            should call `follow_parent` first.
        environment: variables that it starts with, where the user has not set them.
    """
    added = {name: value for name, value in (environment or {}).items() if name not in os.environ}
    ours, theirs = _SPAWN.Pipe()
    os.environ.update(added)
    try:
        with theirs, interrupts_blocked():  # the child alone holds its end, which tells of its end
            process = _SPAWN.Process(target=target, args=(*arguments, theirs), daemon=True)
            process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        for name in added:
            del os.environ[name]
    return Child(process, ours)


@contextmanager
def worker_pool(
    processes: int, initializer: Callable[..., None], arguments: tuple[object, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of fresh processes, each of which calls the initializer first."""
    pool = ProcessPoolExecutor(processes, _SPAWN, _initialize, (initializer, arguments))
    try:
        yield pool
    except BrokenExecutor as error:
        raise ChildEndedError from error
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize(initializer: Callable[..., None], arguments: tuple[object, ...]) -> None:
    follow_parent()
    initializer(*arguments)


class TaskPool:
    """Takes one list of tasks after another, in this process or in a pool."""

    def __init__(
        self, pool: ProcessPoolExecutor | None = None, reports: Queue[Any] | None = None
    ) -> None:
        self._pool = pool
        self._reports = reports

    def run(
        self,
        task: Callable[[Item, Callable[[Report], None]], Result],
        items: Sequence[Item],
        on_report: Callable[[Report], None],
    ) -> list[Result]:
        """Return the result of each item, in the order of the items.

        Args:
            task: function of a module; called with an item and a function for reports, which
                raises `StoppedError` where the caller was interrupted.
        """
        if self._pool is None or self._reports is None:
            return [task(item, on_report) for item in items]
        futures = [self._pool.submit(_Worker.run, task, item) for item in items]
        waiting, missing = set(futures), 0
        while waiting or missing > 0:
            done, waiting = wait_for_futures(waiting, 0, FIRST_COMPLETED)
            missing += sum(future.result().reports for future in done)
            missing -= _deliver(self._reports, on_report)
        return [future.result().result for future in futures]


def _deliver(reports: Queue[Any], on_report: Callable[[Any], None]) -> int:
    """Deliver the reports that are there, or come within a moment; return how many."""
    delivered, timeout = 0, _POLL_SECONDS
    while True:
        try:
            report = reports.get(timeout=timeout)
        except queue.Empty:
            return delivered
        on_report(report)
        delivered, timeout = delivered + 1, 0.0


@contextmanager
def task_pool(processes: int) -> Iterator[TaskPool]:
    """Open processes for tasks that report as they go on; all end with the context.

    Args:
        processes: how many items are done at once; 1 does all in this process. A script that asks
            for more must guard its main part by `if __name__ == "__main__"`.
    """
    if processes == 1:
        yield TaskPool()
        return
    reports, stop = _SPAWN.Queue(), _SPAWN.Event()
    with worker_pool(processes, _Worker.start, (reports, stop)) as pool:
        try:
            yield TaskPool(pool, reports)
        finally:
            stop.set()


@dataclass(frozen=True, slots=True)
class _TaskResult(Generic[Result]):
    """The result of a task, and how many reports it sent."""

    result: Result
    reports: int


class _Worker:
    """State of one process between tasks."""

    reports: ClassVar[Queue[Any]]
    stop: ClassVar[Event]
    sent: ClassVar[int] = 0

    @classmethod
    def start(cls, reports: Queue[Any], stop: Event) -> None:
        cls.reports, cls.stop = reports, stop

    @classmethod
    def run(
        cls, task: Callable[[Item, Callable[[Report], None]], Result], item: Item
    ) -> _TaskResult[Result]:
        cls.sent = 0
        return _TaskResult(task(item, cls.report), cls.sent)

    @classmethod
    def report(cls, report: object) -> None:
        if cls.stop.is_set():
            raise StoppedError
        cls.reports.put(report)
        cls.sent += 1
