"""The true distances that score vectors are held against, and the margins (Algorithm 1)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ledger.protocol.documents.vector import decode_vector
from ledger.protocol.errors import EncodingError
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.rules.registry import distance_named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.documents.vector import ScoreVector
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.rules.distance import Distances, Updates
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
            inputs: of the round.
            updates: all that are usable.
            distances: how distances are computed.
            displacement: w_s − w_t, shape (d,), where the distances depend on it.

        Raises:
            ValueError: they do, and it is not given.
        """
        self._rule = distance_named(inputs.parameters.distance)
        self._context = inputs.distance_context(displacement)
        self._updates = updates
        self._distances = distances
        self._members = tuple(m for m in sorted(inputs.participants.members) if m in updates)
        self._columns = {client: place for place, client in enumerate(sorted(updates))}
        self._rows = {member: place for place, member in enumerate(self._members)}
        self._measure = self._rule.among(updates, self._context)
        self._matrix: NDArray[np.float64] | None = None

    def between(self, client: ClientId, member: ClientId) -> float:
        """Return the distance of a client's update from a member's."""
        if self._matrix is None:
            self._matrix = self._distances(self._rule, self._context, self._updates, self._members)
        return float(self._matrix[self._rows[member], self._columns[client]])

    def is_off(self, client: ClientId, member: ClientId, claim: float, margins: float) -> bool:
        """Say whether a published distance is a number of margins or more from the true one."""
        truth = self.between(client, member)
        if claim == truth:
            return False
        tolerance = self._measure.tolerance(self._updates[client], truth)
        return abs(claim - truth) >= margins * tolerance

    def can_score(self, member: ClientId) -> bool:
        """Say whether the member has a usable update with distances that tell anything."""
        return member in self._rows and self._measure.can_score(self._updates[member])


@lru_cache(maxsize=256)
def parse_vector(data: bytes) -> ScoreVector | None:
    """Return the vector behind bytes, None if they are not one (reason 1)."""
    # All members of a process read the vectors of a round again at every step.
    try:
        return decode_vector(data)
    except EncodingError:
        return None
