"""Validity of signed score vectors (Algorithm 1, lines 1-5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ledger.protocol.documents.vector import decode_vector
from ledger.protocol.errors import EncodingError
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.types import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.documents.vector import ScoreVector
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.rules.distance import Distances, Updates
    from ledger.protocol.types import ClientId, Scores

REFUSAL_MARGINS = 1.0
"""Number of margins from which a distance may be refused."""

PRIMARY_MARGINS = 1.5
"""Number of margins from which a primary refuses, so that others' sums agree with it."""

COUNTING_MARGINS = 2.0
"""Number of margins up to which a distance may count; beyond, an audit names the member."""


@dataclass(frozen=True, slots=True)
class ScoreFault:
    """Reason why a score vector does not count, with the client of a false distance."""

    reason: RefusalReason
    client: ClientId | None = None


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
        self._rule = DISTANCES[inputs.parameters.distance]
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


def find_score_fault(
    inputs: Inputs,
    clients: Sequence[ClientId],
    claim: Scores,
    vector: ScoreVector | None,
    table: DistanceTable | None,
    margins: float,
) -> ScoreFault | None:
    """Return the lowest reason why a vector cannot count for a set of usable updates, or None.

    Args:
        inputs: of the round.
        clients: the usable updates, ascending, that the claim names.
        claim: the signed claim.
        vector: decoded; None if the bytes are not a vector.
        table: true distances; None where the updates are unavailable, so that reason 6, and whether
            an update is only zeros, are not checked.
        margins: number of margins from which a distance is false.
    """
    simple = _simple_fault(inputs, clients, claim, vector)
    if simple is not None and simple <= RefusalReason.NO_USABLE_UPDATE:
        return ScoreFault(simple)
    if table is not None and not table.can_score(claim.member):
        return ScoreFault(RefusalReason.NO_USABLE_UPDATE)
    if simple is not None:
        return ScoreFault(simple)
    if vector is None or table is None or not inputs.parameters.scores_checked:
        return None
    for client, published in vector.claims().items():
        if table.is_off(client, claim.member, published, margins):
            return ScoreFault(RefusalReason.FALSE_DISTANCE, client)
    return None


def _simple_fault(
    inputs: Inputs, clients: Sequence[ClientId], claim: Scores, vector: ScoreVector | None
) -> RefusalReason | None:
    """Return the lowest reason that needs no update, None if none of them holds."""
    if vector is None:
        return RefusalReason.NOT_A_VECTOR
    if (vector.round, vector.member, vector.base) != (claim.round, claim.member, claim.base):
        return RefusalReason.OF_ANOTHER
    if claim.member not in clients:
        return RefusalReason.NO_USABLE_UPDATE
    members = set(inputs.participants.committee)
    trainers = tuple(client for client in clients if client not in members)
    others = tuple(c for c in clients if c in members and c != claim.member)
    if (vector.trainers, vector.members) != (trainers, others):
        return RefusalReason.OTHER_CLIENTS
    return None if vector.is_in_range else RefusalReason.OUT_OF_RANGE
