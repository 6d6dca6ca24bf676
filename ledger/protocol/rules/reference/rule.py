"""What a reference rule is, and how far references follow the model's travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring.median import median

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DirectionWeight:
    """How references follow the travel, the way that the model went in the rounds before.

    Attributes:
        window: rounds that it is taken over; fewer in the first ones.
        slope: multiple for each unit of the members' agreement with it.
        cap: the largest multiple.
    """

    window: int
    slope: float
    cap: float

    def multiple(self, cosines: Sequence[float]) -> float:
        """Return b = min(cap, slope · max(0, g)), how much of the travel a reference takes.

        A committee that moves against the travel, or across it, has none of it: where attackers
        once led the model, the way that it went is theirs.

        Args:
            cosines: of each member's update and the travel; g is their median.

        Returns:
            At least 0; 0 if there are none.
        """
        if not cosines:
            return 0.0
        agreement = float(median(np.array(cosines, dtype=np.float64)))
        return min(self.cap, self.slope * max(0.0, agreement))

    def window_start(self, round_number: int) -> int:
        """Return s, the round whose model the travel of a round begins with; itself in the first.

        Args:
            round_number: t, from 1.
        """
        return max(1, round_number - self.window)


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """What members hold updates against.

    Attributes:
        name: as in TOML and in the run document.
        travel: how far references follow the travel; None where they are the members' own updates.
        distance: name of the only distance that it goes with; None for any.
        sentence: what it adds to the distance, for a reader; empty for nothing.
    """

    name: str
    travel: DirectionWeight | None
    distance: str | None
    sentence: str
