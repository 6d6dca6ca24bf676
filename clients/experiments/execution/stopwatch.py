"""Timing of a run from outside: engine and distances wrapped with a clock."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.experiments.rows import CellSeconds
from clients.training.port import Engine, Evaluation, PendingEvaluation, TrainedUpdate, TrainingJob
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

TRAINING = "training"
SCORING = "scoring"
EVALUATION = "evaluation"

_DECIMALS = 6


class Stopwatch:
    """Adds up seconds by what they went into, from when it is made to the last round.

    Attributes:
        spent: seconds of each part.

    Args:
        clock: seconds from any beginning.
        processor: seconds that this process has had of processors, from any beginning.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._clock, self._processor = clock, processor
        self._begun = self._opened = self._last = clock()
        self._processor_begun = self._processor_last = processor()

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add what passes in the context to a part."""
        begun = self._clock()
        try:
            yield
        finally:
            self.spent[part] += self._clock() - begun

    def lap(self) -> None:
        """Note the end of a round."""
        self._last, self._processor_last = self._clock(), self._processor()

    def watched(self, engine: Engine) -> Engine:
        """Return an engine to the same effect whose work is timed; rounds begin now."""
        self._opened = self._clock()
        return TimedEngine(engine, self)

    def seconds(self, *, is_committee: bool) -> CellSeconds:
        """Return where the seconds have gone, up to the last round.

        Args:
            is_committee: whether members score updates and a ledger records them; else a server or
                the clients themselves make a model of them.
        """
        parts = {part: self.spent[part] for part in (TRAINING, SCORING, EVALUATION)}
        rest = self._last - self._opened - sum(parts.values())
        shown = {**parts, "ledger": rest} if is_committee else {**parts}
        if not is_committee:
            shown[SCORING] += rest
        if not parts[TRAINING]:  # a kind that trains without an engine
            shown = {}
        return CellSeconds(
            wall=round(self._last - self._begun, _DECIMALS),
            cpu=round(self._processor_last - self._processor_begun, _DECIMALS),
            **{part: round(spent, _DECIMALS) for part, spent in shown.items()},
        )


class TimedEngine(Engine):
    """An engine whose work is timed; what it computes is the other's.

    Args:
        engine: does the work; its opener closes it.
    """

    def __init__(self, engine: Engine, stopwatch: Stopwatch) -> None:
        self._engine = engine
        self._stopwatch = stopwatch
        self.distances = _timed(engine.distances, stopwatch)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        with self._stopwatch.timing(TRAINING):
            return self._engine.train(start, jobs)

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Begin to evaluate a parameter vector; see `Engine.evaluate`."""
        with self._stopwatch.timing(EVALUATION):
            pending = self._engine.evaluate(vector, sets)

        def result() -> tuple[Evaluation, ...]:
            with self._stopwatch.timing(EVALUATION):
                return pending.result()

        return PendingEvaluation(result)

    def close(self) -> None:
        """Leave the other open: it is not this one's to close."""


def _timed(distances: Distances, stopwatch: Stopwatch) -> Distances:
    def computed(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        with stopwatch.timing(SCORING):
            return distances(rule, travel, updates, members)

    return computed
