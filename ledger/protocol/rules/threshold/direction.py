"""A right angle: cosine above 0, for updates of up to twice the median length."""

from __future__ import annotations

from math import nextafter
from typing import TYPE_CHECKING

from ledger.protocol.rules.threshold.rule import ThresholdRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.rules.scoring.rule import ScoringRule

RIGHT_ANGLE = nextafter(2.0, 0.0)
"""The float64 just below 2, bits 0x3FFFFFFFFFFFFFFF: the squared distance of orthogonal units."""


def right_angle(
    member_distances: Sequence[NDArray[np.float64]],  # noqa: ARG001 - one signature for all rules
    scoring: ScoringRule,  # noqa: ARG001
) -> float:
    """Return the threshold, which depends on nothing that anybody published."""
    return RIGHT_ANGLE


DIRECTION = ThresholdRule(
    name="direction", find=right_angle, distance="direction", sentence="a right angle"
)
