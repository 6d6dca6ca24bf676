"""Independent pieces of work in processes of their own, which report as they go on."""

from __future__ import annotations

import multiprocessing
import queue
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ledger.io.processes import follow_parent as end_with_parent
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = TypeVar("Report")

_POLL_SECONDS = 0.1


class ProcessError(CmflError):
    """Work could not be carried out: its process ended."""


class StoppedError(Exception):
    """The work was told to stop; raised inside it by its next report."""


def follow_parent() -> None:
    """Let a worker process live no longer than its parent, which alone minds interrupts."""
    end_with_parent()
    # Locks that libraries make (tqdm, for torch.fx) have no name that way: a process that is killed
    # would leave it behind, and the resource tracker complain of it.
    multiprocessing.set_start_method("fork", force=True)


class Workers(Protocol):
    """Processes that take one list of work after another."""

    def carry_out(
        self,
        work: Callable[[Item, Callable[[Report], None]], Result],
        items: Sequence[Item],
        on_report: Callable[[Report], None],
    ) -> list[Result]:
        """Return what the work makes of each item, in the order of the items.

        Args:
            work: a function of a module; it gets an item and a function by which it reports, which
                ends it, by an exception, where the caller was interrupted.
            items: what there is to do; anything that can be pickled.
            on_report: called in this process with each report.

        Raises:
            ProcessError: a process ended before its work was done.
        """


@contextmanager
def workers(processes: int) -> Iterator[Workers]:
    """Open processes, which begin as they are needed; all end with the context.

    Args:
        processes: how many items are done at once; 1 does all here, in this process. A script that
            asks for more must guard its main part by `if __name__ == "__main__"`.

    Yields:
        What takes work.
    """
    if processes == 1:
        yield _Here()
        return
    context = multiprocessing.get_context("spawn")
    reports, stop = context.Queue(), context.Event()
    with ProcessPoolExecutor(processes, context, _Worker.start, (reports, stop)) as pool:
        try:
            yield _Pool(pool, reports)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def in_processes(
    work: Callable[[Item, Callable[[Report], None]], Result],
    items: Sequence[Item],
    processes: int,
    on_report: Callable[[Report], None],
) -> list[Result]:
    """Return what the work makes of each item, in the order of the items; see `Workers.carry_out`.

    Args:
        work: a function of a module.
        items: what there is to do.
        processes: how many are done at once; see `workers`.
        on_report: called in this process with each report.

    Raises:
        ProcessError: a process ended before its work was done.
    """
    with workers(processes) as opened:
        return opened.carry_out(work, items, on_report)


class _Here(Workers):
    """This process, which does one thing after the other."""

    def carry_out(
        self,
        work: Callable[[Item, Callable[[Report], None]], Result],
        items: Sequence[Item],
        on_report: Callable[[Report], None],
    ) -> list[Result]:
        return [work(item, on_report) for item in items]


class _Pool(Workers):
    """Processes of their own."""

    def __init__(self, pool: ProcessPoolExecutor, reports: Queue[Any]) -> None:
        self._pool = pool
        self._reports = reports

    def carry_out(
        self,
        work: Callable[[Item, Callable[[Report], None]], Result],
        items: Sequence[Item],
        on_report: Callable[[Report], None],
    ) -> list[Result]:
        futures = [self._pool.submit(_Worker.run, work, item) for item in items]
        waiting, missing = set(futures), 0
        try:
            while waiting or missing > 0:
                ended, waiting = wait(waiting, 0, FIRST_COMPLETED)
                missing += sum(future.result().reports for future in ended)
                missing -= _pass_on(self._reports, on_report)
            return [future.result().result for future in futures]
        except BrokenExecutor as error:
            raise ProcessError(f"a process ended before its work: {error}") from error


def _pass_on(reports: Queue[Report], on_report: Callable[[Report], None]) -> int:
    """Hand on what was reported, or comes within a moment; return how many reports it was."""
    passed, patience = 0, _POLL_SECONDS
    while True:
        try:
            report = reports.get(timeout=patience)
        except queue.Empty:
            return passed
        on_report(report)
        passed, patience = passed + 1, 0.0


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    """What a worker made of an item, and how many reports it sent on the way."""

    result: Result
    reports: int


class _Worker:
    """What one process keeps between items."""

    reports: ClassVar[Queue[Any]]
    stop: ClassVar[Event]
    sent: ClassVar[int] = 0

    @classmethod
    def start(cls, reports: Queue[Any], stop: Event) -> None:
        follow_parent()
        cls.reports, cls.stop = reports, stop

    @classmethod
    def run(
        cls, work: Callable[[Item, Callable[[Report], None]], Result], item: Item
    ) -> _Done[Result]:
        cls.sent = 0
        return _Done(work(item, cls.report), cls.sent)

    @classmethod
    def report(cls, report: object) -> None:
        if cls.stop.is_set():
            raise StoppedError
        cls.reports.put(report)
        cls.sent += 1
