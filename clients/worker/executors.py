"""Executors for long work of a worker: one background thread, or immediate execution in tests.

Training and sending may take long, and votes are due meanwhile.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class TaskInterrupt(BaseException):
    """Raised in a task whose process ends."""


class ImmediateExecutor(Executor):
    """Runs each task before `submit` returns."""

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run a task and return its result."""
        done: Future[T] = Future()
        _carry_out(done, lambda: task(*arguments, **named))
        return done


class SingleThreadExecutor(Executor):
    """Runs tasks in order in a thread that does not delay the end of the process."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_busy = self._is_interrupted = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Queue a task."""
        pending: Future[T] = Future()
        self._waiting.put(lambda: _carry_out(pending, lambda: task(*arguments, **named)))
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


def _carry_out(future: Future[T], task: Callable[[], T]) -> None:
    try:
        result = task()
    except BaseException as error:  # noqa: BLE001 - raised by the future's result
        future.set_exception(error)
    else:
        future.set_result(result)
