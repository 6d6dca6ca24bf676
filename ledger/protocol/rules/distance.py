"""Distance rules: D_k^c of Eq. computeScore and its variants, by their plain, binding code.

A member publishes its distances to all other usable updates of a round. Orders of summation
differ, so a published distance is true within a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.types import ClientId

RELATIVE_TOLERANCE = 1e-9
"""Relative difference allowed between a published distance and the recomputed one."""

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each tensor, in the order in which the flat vector joins them."""

Updates = Mapping[ClientId, NDArray[np.float32]]
"""Usable updates of one round, each of shape (d,)."""

Travel = NDArray[np.float32] | None
"""w_s − w_t, shape (d,); None where a round's distances do not depend on it."""


@dataclass(frozen=True, slots=True)
class DistanceRule:
    """A way to score an update.

    Attributes:
        name: as in the run document; strategy III's is in none.
        sentence: name of the distances for a reader: "by ... to the members".
        between: distance of a client's update from a member's, at least 0; None for strategy III's,
            which depends on all updates of the round.
        absolute_tolerance: absolute part of the margin, where `between` is given.
    """

    name: str
    sentence: str
    between: Callable[[NDArray[np.float32], NDArray[np.float32]], float] | None
    absolute_tolerance: float = 0.0


Distances = Callable[[DistanceRule, Travel, Updates, Sequence[ClientId]], NDArray[np.float64]]
"""Computes all distances of a round at once; `plain_distances` is the one all others equal."""


def plain_distances(
    rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
) -> NDArray[np.float64]:
    """Return the distance of every update from every member's.

    Returns:
        Shape (members, updates), members in the order given, clients ascending.
    """
    clients = sorted(updates)
    if rule.between is None:
        return np.tile(direction_distances(updates, travel).distances, (len(members), 1))
    if len({updates[client].shape for client in clients}) > 1:
        raise ValueError("the updates differ in length")
    rows = [[rule.between(updates[k], updates[c]) for k in clients] for c in members]
    return np.array(rows, dtype=np.float64).reshape(len(members), len(clients))


def squared_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return D = ‖Δ_k − Δ_c‖², the paper's distance, accumulated in float64."""
    delta = update.astype(np.float64) - reference.astype(np.float64)
    return float(np.dot(delta, delta))


SQUARED = DistanceRule("squared", "squared distances", squared_distance)
DIRECTION = DistanceRule("direction", "distances of direction", None)
