"""The median of a trainer's distances to the members, which survives lying members: ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.scoring.rule import ScoringRule

if TYPE_CHECKING:
    from numpy.typing import NDArray


def median(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle value along the first axis, or (a + b) / 2 of the two.

    Args:
        distances: D_k^c, shape (members, trainers).

    Returns:
        Shape (trainers,).

    Raises:
        ValueError: there is no member.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    ordered = np.sort(distances, axis=0)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return np.asarray(ordered[half])
    return np.asarray((ordered[half - 1] + ordered[half]) / 2)


MEDIAN = ScoringRule(name="median", combine=median, sentence="median")
