"""The paper's distance: D_k^c = ‖Δ_k − Δ_c‖² (Eq. computeScore)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.distance.rule import DistanceRule, RelativeMeasure, difference

if TYPE_CHECKING:
    from numpy.typing import NDArray


def squared_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return D = ‖Δ_k − Δ_c‖², accumulated in float64.

    Args:
        update: Δ_k, shape (d,).
        reference: Δ_c, shape (d,).

    Returns:
        The squared distance, at least 0.

    Raises:
        ValueError: the updates differ in length.
    """
    delta = difference(update, reference)
    return float(np.dot(delta, delta))


SQUARED = DistanceRule(
    name="squared",
    among=lambda _updates, _ground: RelativeMeasure(squared_distance),
    sentence="squared distances",
)
