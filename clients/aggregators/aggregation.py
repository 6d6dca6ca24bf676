"""The server's pipeline: leave out, pre-aggregate, aggregate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clients.aggregators.aggregator import AggregatorSelection
from clients.aggregators.fed_avg import FedAvg
from clients.aggregators.mixture import Mixture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clients.aggregators.aggregator import Aggregator
    from clients.aggregators.mixture import Vector
    from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Pre-aggregators, one after the other, and the aggregator after them.

    Attributes:
        aggregator: makes one vector of many.
        pre_aggregators: what is done before.
    """

    aggregator: Aggregator = field(default_factory=FedAvg)
    pre_aggregators: tuple[PreAggregator, ...] = ()

    def require(self, updates: int) -> None:
        """Refuse a number of updates that a stage cannot take."""
        for stage in self.pre_aggregators:
            stage.require(updates)
            updates = stage.count(updates)
        self.aggregator.require(updates)

    def takes(self, updates: int) -> bool:
        """Return whether every stage accepts this number of updates.

        Args:
            updates: n.
        """
        for stage in self.pre_aggregators:
            if updates < stage.least:
                return False
            updates = stage.count(updates)
        return updates >= self.aggregator.least

    def aggregate(
        self,
        updates: Sequence[NDArray[np.float32]],
        samples: Sequence[int],
        last: Vector,
        rng: np.random.Generator,
    ) -> AggregatorSelection | None:
        """Return the aggregated update and the places of the updates that it is made of.

        An update that is not finite is left out before anything else, as a committee leaves it
        out. The options stay: if too few are left for them, nothing is aggregated.

        Args:
            updates: Δ of each client, by ascending client, each of shape (d,).
            samples: n_k of each.
            last: what was aggregated in the round before, zeros in the first, shape (d,).
            rng: the round's stream.

        Returns:
            None if nothing is aggregated.
        """
        usable = [place for place, update in enumerate(updates) if np.isfinite(update).all()]
        if not self.takes(len(usable)):
            return None
        mixture = Mixture([updates[place] for place in usable])
        weights = np.array([samples[place] for place in usable], dtype=np.float64)
        for stage in self.pre_aggregators:
            mixture = mixture.mixed(stage.coefficients(mixture, rng))
            # Means of updates weigh alike, as in the papers.
            weights = np.ones(len(mixture))
        selection = self.aggregator.aggregate(mixture, weights, last)
        return AggregatorSelection(
            selection.vector, tuple(usable[i] for i in mixture.sources(selection.used))
        )
