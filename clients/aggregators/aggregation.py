"""The server's pipeline: exclude, pre-aggregate, aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clients.aggregators.aggregator import Aggregator, AggregatorSelection
from clients.aggregators.fed_avg import FedAvg
from clients.aggregators.mixture import Mixture, Vector
from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator
from clients.aggregators.stage import AggregationStage


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Pre-aggregators in order, followed by an aggregator."""

    aggregator: Aggregator = field(default_factory=FedAvg)
    pre_aggregators: tuple[PreAggregator, ...] = ()

    @property
    def is_mean(self) -> bool:
        """Whether it is the plain mean of updates that weigh alike."""
        aggregator = self.aggregator
        is_plain = isinstance(aggregator, FedAvg) and not aggregator.clipped
        return is_plain and not self.pre_aggregators

    def _stages(self, updates: int) -> Iterator[tuple[AggregationStage, int]]:
        """Yield each stage with the number of vectors that it gets."""
        for stage in self.pre_aggregators:
            yield stage, updates
            updates = stage.count(updates)
        yield self.aggregator, updates

    def require(self, updates: int) -> None:
        """Reject a number of updates that a stage cannot take."""
        for stage, count in self._stages(updates):
            stage.require(count)

    def takes(self, updates: int) -> bool:
        """Return whether every stage accepts this number of updates."""
        return all(count >= stage.least for stage, count in self._stages(updates))

    def aggregate(
        self,
        updates: Sequence[NDArray[np.float32]],
        samples: Sequence[int],
        last: Vector,
        rng: np.random.Generator,
    ) -> AggregatorSelection | None:
        """Return the aggregated update and the rows of the updates that it uses.

        Updates that are not finite are excluded first, as by a committee. If too few remain for the
        options, nothing is aggregated.

        Args:
            updates: Δ of each client, by ascending client, each of shape (d,).
            samples: n_k of each.
            last: the previous round's aggregate, zeros in the first, shape (d,).

        Returns:
            None if nothing is aggregated.
        """
        usable = [row for row, update in enumerate(updates) if np.isfinite(update).all()]
        if not self.takes(len(usable)):
            return None
        mixture = Mixture([updates[row] for row in usable])
        weights = np.array([samples[row] for row in usable], dtype=np.float64)
        for stage in self.pre_aggregators:
            mixture = mixture.mixed(stage.coefficients(mixture, rng))
            # Means of updates weigh alike, as in the papers.
            weights = np.ones(len(mixture))
        selection = self.aggregator.aggregate(mixture, weights, last)
        return AggregatorSelection(
            selection.vector, tuple(usable[i] for i in mixture.sources(selection.used))
        )
