"""Evaluation of each round's model on local samples, for the owner's information only."""

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
    """Quality of the model at a round's start.

    Attributes:
        round: t.
        accuracy: share of the samples classified right, in [0, 1].
        loss: mean cross-entropy; None if it is not finite.
    """

    round: int
    accuracy: float
    loss: float | None


class BackgroundEvaluator:
    """Evaluates each round's model once, in the training thread after training.

    Attributes:
        newest: the newest result.
    """

    def __init__(self, engine: Engine, sets: Sequence[str], executor: Executor) -> None:
        """Prepare evaluations on the named sets of samples; none are made without a set."""
        self._engine = engine
        self._sets = tuple(sets)
        self._executor = executor
        self._running: tuple[int, Future[tuple[Evaluation, ...]]] | None = None
        self._begun = 0
        self.newest: MeasuredModel | None = None

    def look(self, round_number: int, model: NDArray[np.float32]) -> bool:
        """Start or collect the evaluation of a round's model w_t, shape (d,).

        Returns:
            Whether no evaluation is running.

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


def _measured(round_number: int, evaluations: tuple[Evaluation, ...]) -> MeasuredModel:
    samples = sum(evaluation.samples for evaluation in evaluations)
    loss = sum(evaluation.loss for evaluation in evaluations) / samples
    accuracy = sum(evaluation.correct for evaluation in evaluations) / samples
    return MeasuredModel(round_number, accuracy, loss if isfinite(loss) else None)
