"""An engine that is replaced after a failure.

An engine of several processes ends all of them if one fails. A worker runs unattended for months:
a process that the system kills for its memory must not cost its clients all further rounds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

T = TypeVar("T")


class RestartingEngine(Engine):
    """Delegates to an engine. Not safe for several threads, except `distances`."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        """Open the first engine."""
        self._open = open_engine
        self._engine = open_engine()
        self._has_failed = self._is_closed = False
        self.distances = self._engine.distances

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Train; see `Engine.train`. After a failure the next call goes to a new engine."""
        return self._tried(lambda engine: engine.train(start, jobs))

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Evaluate; see `Engine.evaluate`. After a failure the next call goes to a new engine."""
        return self._tried(lambda engine: engine.evaluate(vector, sets))

    def interrupt(self) -> None:
        """End the engine's processes, so that training fails; call from any other thread.

        The training thread's owner closes the engine: two threads cannot close it at once.
        """
        self._is_closed = True
        for process in getattr(self._engine, "processes", ()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def close(self) -> None:
        """Close the engine and open no other."""
        self._is_closed = True
        self._engine.close()

    def _tried(self, task: Callable[[Engine], T]) -> T:
        if self._is_closed:
            raise TrainingError("the worker ends: nothing is trained any more")
        if self._has_failed:
            self._engine.close()
            self._engine = self._open()
            self._has_failed = False
        try:
            return task(self._engine)
        except TrainingError:
            self._has_failed = True
            raise
