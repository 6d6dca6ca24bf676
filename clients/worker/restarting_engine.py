"""An engine that is opened again once it has failed.

An engine of several processes ends them all where one of them fails: a run of one process ends
with it, and its user begins it again. A worker goes on for months with nobody beside it, and a
process that the system has killed for its memory shall not cost its clients all further rounds.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from clients.training.port import Engine, TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.models.model import ParameterVector
    from clients.training.port import PendingEvaluation, TrainedUpdate, TrainingJob

T = TypeVar("T")


class RestartingEngine(Engine):
    """Does what the engine that is open now does. Not for several threads, but for `distances`."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        """Open the first.

        Args:
            open_engine: opens one.
        """
        self._open = open_engine
        self._engine = open_engine()
        self._has_failed = self._is_closed = False
        self.distances = self._engine.distances

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; those of the call before are overwritten.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, no client twice.

        Raises:
            TrainingError: it failed; the next call goes to another engine.
        """
        return self._tried(lambda engine: engine.train(start, jobs))

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Begin to evaluate a parameter vector.

        Args:
            vector: shape (d,).
            sets: names of sets of samples.

        Raises:
            TrainingError: it failed; the next call goes to another engine.
        """
        return self._tried(lambda engine: engine.evaluate(vector, sets))

    def interrupt(self) -> None:
        """Let the thread that trains here find its work broken off, from any other thread.

        The processes of an engine are ended, and the engine is closed by whoever waits for them:
        two cannot close it at once.
        """
        self._is_closed = True
        for process in getattr(self._engine, "processes", ()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def close(self) -> None:
        """End the one that is open, and open no other."""
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
