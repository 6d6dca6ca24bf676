"""The true distances that score vectors are held against, and the margins (Algorithm 1)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.documents.vector import ScoreVector, decode_vector
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Inputs
from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.rules.distance import RELATIVE_TOLERANCE, Distances, Updates, plain_distances
from ledger.protocol.types import ClientId

REFUSAL_MARGINS = 1.0
"""Number of margins from which a distance may be refused."""

PRIMARY_MARGINS = 1.5
"""Number of margins from which a primary refuses, so that others' sums agree with it."""

COUNTING_MARGINS = 2.0
"""Number of margins up to which a distance may count; beyond, an audit names the member."""


class DistanceTable:
    """True distances among the usable updates of a round, computed when first asked for."""

    def __init__(
        self,
        inputs: Inputs,
        updates: Updates,
        distances: Distances = plain_distances,
        displacement: NDArray[np.float32] | None = None,
    ) -> None:
        """Take the updates in hand; nothing is computed.

        Args:
            displacement: w_s − w_t, shape (d,), where the distances depend on it.
        """
        if inputs.needs_displacement and displacement is None:
            raise ValueError(f"the distances of round {inputs.round} need an unknown displacement")
        self._rule = inputs.parameters.distance_rule
        self._travel = displacement if inputs.needs_displacement else None
        self._updates = updates
        self._distances = distances
        self._members = tuple(m for m in sorted(inputs.participants.members) if m in updates)
        self._columns = {client: place for place, client in enumerate(sorted(updates))}
        self._rows = {member: place for place, member in enumerate(self._members)}
        self._margins: NDArray[np.float64] | None = None
        self._matrix: NDArray[np.float64] | None = None

    def between(self, client: ClientId, member: ClientId) -> float:
        """Return the distance of a client's update from a member's."""
        if self._matrix is None:
            self._matrix = self._distances(self._rule, self._travel, self._updates, self._members)
        return float(self._matrix[self._rows[member], self._columns[client]])

    def is_off(self, client: ClientId, member: ClientId, claim: float, margins: float) -> bool:
        """Say whether a published distance is a number of margins or more from the true one."""
        truth = self.between(client, member)
        if claim == truth:
            return False
        tolerance = RELATIVE_TOLERANCE * truth + self._absolute_margin(client)
        return abs(claim - truth) >= margins * tolerance

    def can_score(self, member: ClientId) -> bool:
        """Return whether the member has a usable update that it can score by.

        Zeros have no direction, so strategy III does not count the vector of their owner.
        """
        if member not in self._rows:
            return False
        return self._rule.between is not None or bool(self._updates[member].any())

    def _absolute_margin(self, client: ClientId) -> float:
        if self._rule.between is not None:
            return self._rule.absolute_tolerance
        if self._margins is None:
            self._margins = direction_distances(self._updates, self._travel).margins
        return float(self._margins[self._columns[client]])


@lru_cache(maxsize=256)
def parse_vector(data: bytes) -> ScoreVector | None:
    """Return the vector behind bytes, None if they are not one (reason 1)."""
    # All members of a process read the vectors of a round again at every step.
    try:
        return decode_vector(data)
    except EncodingError:
        return None
