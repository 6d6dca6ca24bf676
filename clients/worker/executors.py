"""Where a worker has long work done: beside it in one thread, or at once.

Training and sending may take long, and votes are due meanwhile. Whoever steps a worker by hand has
everything done at once instead.
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
    """A task is not to go on, since its process ends."""


class ImmediateExecutor(Executor):
    """Does what it is given before it returns."""

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Return what a task came to."""
        done: Future[T] = Future()
        _carry_out(done, lambda: task(*arguments, **named))
        return done


class SingleThreadExecutor(Executor):
    """Does one thing after the other in a thread that no end of the process waits for."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_busy = self._is_interrupted = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Return what a task will come to."""
        pending: Future[T] = Future()
        self._waiting.put(lambda: _carry_out(pending, lambda: task(*arguments, **named)))
        return pending

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread after what it has been given.

        Args:
            wait: whether to return only then.
            cancel_futures: without effect: the process that ends does not wait for them.
        """
        self._waiting.put(None)
        if wait:
            self._thread.join()

    def interrupt(self) -> None:
        """End the thread without what it has been given, at the next line of Python that it runs.

        A process that ends while a thread of it is in torch is aborted by the C++ of it: whoever
        has long work done there has to let it stop.
        """
        if self._is_interrupted:
            return
        self._is_interrupted = True
        self._waiting.put(None)
        if self._is_busy:
            number = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(TaskInterrupt))

    def has_ended(self, seconds: float) -> bool:
        """Say whether the thread has ended within so many seconds.

        Args:
            seconds: how long is waited.
        """
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
    except BaseException as error:  # noqa: BLE001 - whoever asks for the result has it raised
        future.set_exception(error)
    else:
        future.set_result(result)
