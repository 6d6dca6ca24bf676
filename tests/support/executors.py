"""An executor without threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ImmediateExecutor(Executor):
    def submit(self, task: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            result = task(*arguments, **named)
        except BaseException as error:  # noqa: BLE001 - raised by the future's result
            done.set_exception(error)
        else:
            done.set_result(result)
        return done
