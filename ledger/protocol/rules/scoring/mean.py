"""The paper's score: the mean of a trainer's distances to the members.

The paper ranks by P_k = C / Σ_c D_k^c. Ranking by P, best first, is ranking by the mean distance,
nearest first; distances are kept here, because they exist for D = 0 too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring.rule import ScoringRule

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over members, summed row by row so that everybody gets the same bits.

    Args:
        distances: D_k^c, shape (members, trainers), members in ascending client order.

    Returns:
        Shape (trainers,).

    Raises:
        ValueError: there is no member.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    total = np.zeros(distances.shape[1:])
    for row in distances:
        total = total + row
    return total / len(distances)


MEAN = ScoringRule(name="mean", combine=mean, sentence="mean")
