"""Reference rules: a member compares updates with its own, or also with the server direction.

A rule also says how length, and crowding, are added to the comparison, and whether the round's
updates take the place of the member's own.

Late in training honest updates are nearly orthogonal, so that the sign of a cosine between two of
them is nearly a coin toss. The recent global displacement, w_s − w_t, is much longer than any one
update, the chain commits to both of its ends, and everybody can compute it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DirectionWeight:
    """The weight of the server direction in a member's reference.

    Attributes:
        window: rounds that the displacement is taken over; fewer in the first ones.
        slope: weight for each unit of the members' agreement with it.
        cap: the largest weight.
    """

    window: int
    slope: float
    cap: float

    def multiple(self, cosines: Sequence[float]) -> float:
        """Return b = min(cap, slope · max(0, g)), 0 without any cosine.

        A committee that moves against the displacement, or across it, gives it no weight: where
        attackers once led the model, the displacement is theirs.

        Args:
            cosines: of each member's update and the displacement; g is their median.
        """
        if not cosines:
            return 0.0
        agreement = float(median(np.array(cosines, dtype=np.float64)))
        return min(self.cap, self.slope * max(0.0, agreement))

    def window_start(self, round_number: int) -> int:
        """Return s, the round whose model a round's displacement starts from; 1 at first."""
        return max(1, round_number - self.window)


class LengthPenalty(Enum):
    """How the factor f of an update that is far too long enters its distances.

    Of identical updates the distance is 0, and 0 times any factor is 0: a sum costs them too.
    """

    FACTOR = "times f"
    SUMMAND = "plus f - 1"
    CROWDED_SUMMAND = "plus f g - 1, g the factor of crowding"


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """A rule for the reference that members compare updates with.

    Attributes:
        name: as in TOML and in the run document.
        direction_weight: of the server direction; None for the members' own updates alone.
        distance: name of the only distance that it goes with; None for any.
        sentence: addition to the distance, for a reader; empty for none.
        first_sentence: the same in round 1, before the model has moved.
        asks_all: whether all usable updates determine the weight; only the members' otherwise.
        penalty: how length enters.
        compares_all: whether an update is compared with all others of the round, the same for every
            member; with the member's otherwise.
    """

    name: str
    direction_weight: DirectionWeight | None
    distance: str | None
    sentence: str
    first_sentence: str = ""
    asks_all: bool = False
    penalty: LengthPenalty = LengthPenalty.FACTOR
    compares_all: bool = False


def displacement(before: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return w_s − w_t, which points as the updates do that made it.

    Each number is one subtraction in float32; all zeros, which have no direction, where one of
    them is not finite.

    Raises:
        ValueError: the models differ in length.
    """
    if before.shape != now.shape:
        raise ValueError(f"models of shapes {before.shape} and {now.shape} differ")
    with np.errstate(over="ignore", invalid="ignore"):
        difference = before.astype(np.float32) - now.astype(np.float32)
    return difference if np.isfinite(difference).all() else np.zeros_like(difference)


OWN = ReferenceRule(name="own", direction_weight=None, distance=None, sentence="")

_RECENT = DirectionWeight(window=20, slope=150.0, cap=3.0)

TRAVEL = ReferenceRule(
    name="travel",
    direction_weight=_RECENT,
    distance="direction",
    sentence="along the model's travel",
)
TRAVEL_SUM = ReferenceRule(
    name="travel-sum",
    direction_weight=_RECENT,
    distance="direction",
    sentence="along the model's travel",
    penalty=LengthPenalty.SUMMAND,
)
CROWD = ReferenceRule(
    name="crowd",
    direction_weight=_RECENT,
    distance="direction",
    sentence="along the model's travel and apart from crowds",
    first_sentence="apart from crowds",
    asks_all=True,
    penalty=LengthPenalty.CROWDED_SUMMAND,
)
PEERS = ReferenceRule(
    name="peers",
    direction_weight=DirectionWeight(window=20, slope=5.0, cap=1.0),
    distance="direction",
    sentence=CROWD.sentence,
    first_sentence=CROWD.first_sentence,
    asks_all=True,
    penalty=LengthPenalty.CROWDED_SUMMAND,
    compares_all=True,
)
