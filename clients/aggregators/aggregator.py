"""The aggregator's interface: many vectors in, one out, with the vectors that it used."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from clients.aggregators.mixture import Mixture, Vector
from clients.aggregators.stage import AggregationStage

Iterations = Annotated[int, Field(ge=1, le=1000)]


@dataclass(frozen=True, slots=True, eq=False)
class AggregatorSelection:
    """The result of an aggregator.

    Attributes:
        vector: the aggregated update, shape (d,).
        used: places of the vectors that it is made of, ascending.
    """

    vector: Vector
    used: tuple[int, ...]


class Aggregator(AggregationStage):
    """An aggregator with its options."""

    @abstractmethod
    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return one vector of many.

        Args:
            mixture: the vectors, at least `least` of them.
            weights: of each, above 0: the samples behind an update, 1 behind a mean of updates.
            last: what was aggregated in the round before, zeros in the first, shape (d,).
        """


def everybody(mixture: Mixture) -> tuple[int, ...]:
    """Return the places of all vectors."""
    return tuple(range(len(mixture)))


def shares(weights: Vector) -> Vector:
    """Return weights as parts of their sum."""
    return np.asarray(weights / weights.sum())
