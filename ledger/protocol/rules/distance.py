"""Distance rules: D_k^c of Eq. computeScore and its variants, by their plain, binding code.

A member publishes its distances to all other usable updates of a round. Orders of summation
differ, so a published distance is true within a margin. The direction distance is `direction.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.reference import LengthPenalty
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.protocol.rules.reference import DirectionWeight

RELATIVE_TOLERANCE = 1e-9
"""Relative difference allowed between a published distance and the recomputed one."""

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each tensor, in the order in which the flat vector joins them."""

Updates = Mapping[ClientId, NDArray[np.float32]]
"""Usable updates of one round, each of shape (d,)."""


@dataclass(frozen=True, slots=True, eq=False)
class ServerDirection:
    """The recent global displacement, and its weight in the members' references.

    Attributes:
        vector: w_s − w_t, shape (d,), finite; all zeros have no effect.
        members: clients whose usable updates that are not all zeros determine the weight.
        weight: the rule for it.
    """

    vector: NDArray[np.float32]
    members: tuple[ClientId, ...]
    weight: DirectionWeight

    def __eq__(self, other: object) -> bool:
        """Compare the vector by its place in memory: as cheap as it is sufficient."""
        if not isinstance(other, ServerDirection):
            return NotImplemented
        return (
            self.vector is other.vector
            and self.members == other.members
            and self.weight == other.weight
        )

    def __hash__(self) -> int:
        """Return the hash that goes with equality."""
        return hash((id(self.vector), self.members, self.weight))


@dataclass(frozen=True, slots=True)
class DistanceContext:
    """Inputs of a round's distances apart from its updates, equal for all who compute them.

    Attributes:
        layout: of the model.
        server_direction: None where members compare with their own updates alone.
        penalty: how an update's length, and crowding, enter distances of direction.
        compares_all: whether these are medians over all other updates, the same for every member.
    """

    layout: Layout = ()
    server_direction: ServerDirection | None = None
    penalty: LengthPenalty = LengthPenalty.FACTOR
    compares_all: bool = False


class DistanceMeasure(Protocol):
    """A distance among the usable updates of one round."""

    def between(self, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        """Return the distance of a client's update from a member's, at least 0."""

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:
        """Return the margin between a claim and this recomputed distance of the update."""

    def can_score(self, reference: NDArray[np.float32]) -> bool:
        """Say whether distances to a member with this update are informative."""


@dataclass(frozen=True, slots=True)
class DistanceRule:
    """A way to score an update.

    Attributes:
        name: as in TOML and in the run document.
        among: makes the measure among all usable updates of a round, in the round's context.
        sentence: name of the distances for a reader: "by ... to the members".
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
    """A measure with a relative margin, by which every member can score."""

    def __init__(
        self, between: Callable[[NDArray[np.float32], NDArray[np.float32]], float]
    ) -> None:
        self.between = between

    def tolerance(self, update: NDArray[np.float32], distance: float) -> float:  # noqa: ARG002
        """Return the relative margin."""
        return RELATIVE_TOLERANCE * distance

    def can_score(self, reference: NDArray[np.float32]) -> bool:  # noqa: ARG002
        """Return True: every member can."""
        return True


def plain_distances(
    rule: DistanceRule,
    context: DistanceContext,
    updates: Updates,
    members: Sequence[ClientId],
) -> NDArray[np.float64]:
    """Return the distance of every update from every member's, pair by pair.

    Returns:
        Shape (members, updates), members in the order given, clients ascending.

    Raises:
        ValueError: two updates differ in length.
    """
    clients = sorted(updates)
    if len({updates[client].shape for client in clients}) > 1:
        raise ValueError("the updates differ in length")
    measure = rule.among(updates, context)
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


def squared_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return D = ‖Δ_k − Δ_c‖², the paper's distance, accumulated in float64."""
    delta = difference(update, reference)
    return float(np.dot(delta, delta))


def l2_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return ‖Δ_k − Δ_c‖, the Euclidean distance that the authors' code takes."""
    return sqrt(squared_distance(update, reference))


def per_tensor_measure(
    updates: Updates,  # noqa: ARG001 - one signature for all rules
    context: DistanceContext,
) -> RelativeMeasure:
    """Return the measure Σ_tensors ‖Δ_k − Δ_c‖ in layout order, as the authors' code has it."""
    ends = np.cumsum([0, *(prod(shape) for _, shape in context.layout)])

    def between(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        delta = difference(update, reference)
        total = 0.0
        for start, end in pairwise(ends.tolist()):
            part = delta[start:end]
            total += sqrt(float(np.dot(part, part)))
        return total

    return RelativeMeasure(between)


SQUARED = DistanceRule(
    name="squared",
    among=lambda _updates, _context: RelativeMeasure(squared_distance),
    sentence="squared distances",
)
L2 = DistanceRule(
    name="l2",
    among=lambda _updates, _context: RelativeMeasure(l2_distance),
    sentence="Euclidean distances",
)
PER_TENSOR = DistanceRule(
    name="per_tensor",
    among=per_tensor_measure,
    sentence="sums of the tensors' distances",
)
