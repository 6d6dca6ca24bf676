"""The Euclidean distance ‖Δ_k − Δ_c‖, which the authors' code takes."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from ledger.protocol.rules.distance.rule import DistanceRule, RelativeMeasure
from ledger.protocol.rules.distance.squared import squared_distance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def l2_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return ‖Δ_k − Δ_c‖, the root of the float64 sum of squares.

    Raises:
        ValueError: the updates differ in length.
    """
    return sqrt(squared_distance(update, reference))


L2 = DistanceRule(
    name="l2",
    among=lambda _updates, _ground: RelativeMeasure(l2_distance),
    sentence="Euclidean distances",
)
