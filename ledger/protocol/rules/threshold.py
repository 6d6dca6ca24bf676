"""Threshold rules: the largest distance that strategy III accepts, certified with the ranking."""

from __future__ import annotations

from dataclasses import dataclass
from math import nextafter
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring import median

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.scoring import ScoringRule

RIGHT_ANGLE = nextafter(2.0, 0.0)
"""The float64 just below 2, bits 0x3FFFFFFFFFFFFFFF: the squared distance of orthogonal units."""

SPREAD_FACTOR = 3.0
"""λ: median absolute deviations that still count as the committee's spread."""


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """A way to find the largest distance that is accepted.

    Attributes:
        name: as in TOML and in the run document.
        find: from the counted members' distances to one another (ascending by member, each
            ascending) and the scoring rule to the threshold; None where there is none.
        distance: name of the only distance that it goes with; None for any.
        sentence: name of the threshold for a reader.
    """

    name: str
    find: Callable[[Sequence[NDArray[np.float64]], ScoringRule], float] | None
    distance: str | None
    sentence: str

    @property
    def is_certified(self) -> bool:
        """True if the committee certifies a threshold."""
        return self.find is not None


def right_angle(
    member_distances: Sequence[NDArray[np.float64]],  # noqa: ARG001 - one signature for all rules
    scoring: ScoringRule,  # noqa: ARG001
) -> float:
    """Return a cosine above 0 as a threshold, for updates of up to twice the median length."""
    return RIGHT_ANGLE


def spread(member_distances: Sequence[NDArray[np.float64]], scoring: ScoringRule) -> float:
    """Return median(x) + λ · median(|x − median(x)|), x_c a member's distance to the others.

    Args:
        member_distances: for each counted member its published distances to the other counted
            members, ascending by client, each of shape (·,); at least one other.
        scoring: the rule that makes one number of them, as it does for trainers.
    """
    rows = [scoring.combine(row.reshape(-1, 1))[0] for row in member_distances]
    values = np.array(rows, dtype=np.float64)
    middle = median(values)
    return float(middle + SPREAD_FACTOR * median(np.abs(values - middle)))


NONE = ThresholdRule(name="none", find=None, distance=None, sentence="no threshold")
SPREAD = ThresholdRule(
    name="spread", find=spread, distance=None, sentence="the committee's own spread"
)
DIRECTION = ThresholdRule(
    name="direction", find=right_angle, distance="direction", sentence="a right angle"
)
