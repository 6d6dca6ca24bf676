"""What a distance rule is, and the plain matrix of distances that every faster one equals.

A member publishes its distances to all other usable updates of a round. Orders of summation
differ, so a published distance is true within a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.distance.context import DistanceContext
from ledger.protocol.types import ClientId

RELATIVE_TOLERANCE = 1e-9
"""How far a published distance may be from the recomputed one, relative to it."""

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each tensor, in the order in which the flat vector joins them."""

Updates = Mapping[ClientId, NDArray[np.float32]]
"""Usable updates of one round, each of shape (d,)."""


class DistanceMeasure(Protocol):
    """A distance among the usable updates of one round."""

    def between(self, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        """Return the distance of a client's update from a member's, at least 0."""

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return how far a claim may be from this recomputed distance of the update."""

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether a member with this update has distances that tell anything."""


@dataclass(frozen=True, slots=True)
class DistanceRule:
    """A way to score an update.

    Attributes:
        name: as in TOML and in the run document.
        among: makes the measure among all usable updates of a round, on the round's ground.
        sentence: what the distances are, for a reader: "by ... to the members".
        needs_all: whether one distance depends on all updates of the round.
    """

    name: str
    among: Callable[[Updates, DistanceContext], DistanceMeasure]
    sentence: str
    needs_all: bool = False


Distances = Callable[
    [DistanceRule, DistanceContext, Updates, Sequence[ClientId]], NDArray[np.float64]
]
"""Computes all distances of a round at once; `plain_distances` is the one all others equal."""


class RelativeMeasure:
    """A measure whose margin is relative, and by which every member can score."""

    def __init__(
        self, between: Callable[[NDArray[np.float32], NDArray[np.float32]], float]
    ) -> None:
        self.between = between

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:  # noqa: ARG002
        """Return the relative margin."""
        return RELATIVE_TOLERANCE * distance

    def can_score(self, reference: NDArray[np.float32]) -> bool:  # noqa: ARG002
        """Every member can."""
        return True


def plain_distances(
    rule: DistanceRule,
    ground: DistanceContext,
    updates: Updates,
    members: Sequence[ClientId],
) -> NDArray[np.float64]:
    """Return the distance of every update from every member's, pair by pair.

    Args:
        rule: the distance.
        ground: of the round.
        updates: all usable updates of a round, each of shape (d,).
        members: those of the clients that score.

    Returns:
        Shape (members, updates), members in the order given, clients ascending.

    Raises:
        ValueError: two updates differ in length.
    """
    clients = sorted(updates)
    if len({updates[client].shape for client in clients}) > 1:
        raise ValueError("the updates differ in length")
    measure = rule.among(updates, ground)
    rows = [[measure.between(updates[k], updates[c]) for k in clients] for c in members]
    return np.array(rows, dtype=np.float64).reshape(len(members), len(clients))


def difference(update: NDArray[np.float32], reference: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return Δ_k − Δ_c in float64, shape (d,).

    Raises:
        ValueError: the updates differ in length.
    """
    if update.shape != reference.shape:
        raise ValueError(f"updates of shapes {update.shape} and {reference.shape} differ")
    return update.astype(np.float64) - reference.astype(np.float64)
