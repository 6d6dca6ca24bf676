"""How good the models are on samples of a worker's own: nobody else has to believe it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor, Future

    import numpy as np
    from numpy.typing import NDArray

    from clients.training.port import Engine, Evaluation


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """How good the model is that a round began with.

    Attributes:
        round: t.
        accuracy: share of the samples classified right, in [0, 1].
        loss: mean cross-entropy there; None where it is not finite.
    """

    round: int
    accuracy: float
    loss: float | None


class BackgroundEvaluator:
    """Measures each round's model once, where it trains and after it has trained.

    Attributes:
        newest: the last that was measured.
    """

    def __init__(self, engine: Engine, sets: Sequence[str], executor: Executor) -> None:
        """Take up what it measures with.

        Args:
            engine: evaluates.
            sets: names of its sets of samples; nothing is measured without any.
            executor: of one thread, in which the engine is called.
        """
        self._engine = engine
        self._sets = tuple(sets)
        self._executor = executor
        self._running: tuple[int, Future[tuple[Evaluation, ...]]] | None = None
        self._begun = 0
        self.newest: MeasuredModel | None = None

    def look(self, round_number: int, model: NDArray[np.float32]) -> bool:
        """Begin to measure a round's model if nobody has, take what is done, and say if it is.

        Args:
            round_number: t.
            model: w_t, shape (d,).

        Raises:
            TrainingError: the model failed on the samples.
        """
        if self._running is not None and self._running[1].done():
            (number, running), self._running = self._running, None
            self.newest = _measured(number, running.result())
        if self._sets and self._running is None and self._begun != round_number:
            self._begun = round_number
            self._running = round_number, self._executor.submit(self._evaluated, model)
        return self._running is None

    def _evaluated(self, model: NDArray[np.float32]) -> tuple[Evaluation, ...]:
        return self._engine.evaluate(model, self._sets).result()


def _measured(round_number: int, found: tuple[Evaluation, ...]) -> MeasuredModel:
    samples = sum(one.samples for one in found)
    loss = sum(one.loss for one in found) / samples
    accuracy = sum(one.correct for one in found) / samples
    return MeasuredModel(round_number, accuracy, loss if isfinite(loss) else None)
