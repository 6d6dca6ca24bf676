"""Processes that work for this one and end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class WorkerEndedError(CmflError):
    """A process ended before its work was done: killed, or out of memory."""


@contextmanager
def worker_pool(
    processes: int, begin: Callable[..., None], arguments: tuple[object, ...]
) -> Iterator[ProcessPoolExecutor]:
    """Open processes, fresh ones, that take work; all end with the context.

    Args:
        processes: how many.
        begin: a function of a module that each of them calls first.
        arguments: its arguments.

    Yields:
        The pool; what it is given was made here, and what comes back by this project's own code.

    Raises:
        WorkerEndedError: one of them ended before its work.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _begun, (begin, arguments))
    try:
        yield pool
    except BrokenExecutor as error:
        raise WorkerEndedError(
            "a process ended before its work was done: it was killed, or the machine ran out of "
            "memory"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that no interrupt of the terminal reaches, not even while they import.

    Blocked and not ignored: an interrupt that comes meanwhile waits for this process.
    """
    resource_tracker.ensure_running()  # which would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """Let this process live no longer than its parent, which alone minds interrupts."""
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _begun(begin: Callable[..., None], arguments: tuple[object, ...]) -> None:
    follow_parent()
    begin(*arguments)


def _end_with_parent() -> None:
    # A pool's workers wait for ever on a queue that they keep open themselves: a parent killed
    # outright would leave them behind.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
