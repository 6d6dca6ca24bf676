"""What the distances of a round stand on beside its updates; the same for all who compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.rules.distance.rule import Layout
    from ledger.protocol.rules.reference.rule import DirectionWeight
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True, eq=False)
class ServerDirection:
    """What draws the members' references in one direction.

    Attributes:
        vector: w_s − w_t, shape (d,), finite; all zeros draw nobody.
        members: whose updates say how far, as far as they are usable and not all zeros.
        travel: how far.
    """

    vector: NDArray[np.float32]
    members: tuple[ClientId, ...]
    travel: DirectionWeight

    def __eq__(self, other: object) -> bool:
        """Say whether it is the same vector in the same memory, and so on."""
        if not isinstance(other, ServerDirection):
            return NotImplemented
        mine, others = (self.members, self.travel), (other.members, other.travel)
        return self.vector is other.vector and mine == others

    def __hash__(self) -> int:
        """Return what equal pulls have in common."""
        return hash((id(self.vector), self.members, self.travel))


@dataclass(frozen=True, slots=True)
class DistanceContext:
    """What the distances of a round stand on.

    Attributes:
        layout: of the model.
        pull: what draws the members' references; None where they are their own updates.
    """

    layout: Layout = ()
    pull: ServerDirection | None = None
