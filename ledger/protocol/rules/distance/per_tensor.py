"""The sum of the tensors' Euclidean distances, in layout order, as the authors' code has it."""

from __future__ import annotations

from itertools import pairwise
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.distance.rule import DistanceRule, RelativeMeasure, difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.protocol.rules.distance.context import DistanceContext
    from ledger.protocol.rules.distance.rule import Updates


def per_tensor_measure(
    updates: Updates,  # noqa: ARG001 - one signature for all rules
    ground: DistanceContext,
) -> RelativeMeasure:
    """Return the measure Σ_tensors ‖Δ_k − Δ_c‖.

    Args:
        updates: not used.
        ground: with the tensors whose numbers the flat vector joins.
    """
    ends = np.cumsum([0, *(prod(shape) for _, shape in ground.layout)])

    def between(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        delta = difference(update, reference)
        total = 0.0
        for start, end in pairwise(ends.tolist()):
            part = delta[start:end]
            total += sqrt(float(np.dot(part, part)))
        return total

    return RelativeMeasure(between)


PER_TENSOR = DistanceRule(
    name="per_tensor",
    among=per_tensor_measure,
    sentence="sums of the tensors' distances",
)
