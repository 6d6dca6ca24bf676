"""The committee's own spread: how far its honest members lie from one another, with room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring.median import median
from ledger.protocol.rules.threshold.rule import ThresholdRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.scoring.rule import ScoringRule

SPREAD_FACTOR = 3.0
"""λ: how many median absolute deviations still count as the committee's spread."""


def spread(member_distances: Sequence[NDArray[np.float64]], scoring: ScoringRule) -> float:
    """Return median(x) + λ · median(|x − median(x)|), x_c a member's distance to the others.

    Args:
        member_distances: for each counted member its published distances to the other counted
            members, ascending by client, each of shape (·,); at least one other.
        scoring: the rule that makes one number of them, as it does for trainers.

    Returns:
        The largest distance that is accepted.
    """
    rows = [scoring.combine(row.reshape(-1, 1))[0] for row in member_distances]
    values = np.array(rows, dtype=np.float64)
    middle = median(values)
    return float(middle + SPREAD_FACTOR * median(np.abs(values - middle)))


SPREAD = ThresholdRule(
    name="spread", find=spread, distance=None, sentence="the committee's own spread"
)
