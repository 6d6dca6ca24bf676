"""A member's own direction and the model's travel are what it holds others against: ours.

Late in training honest updates are nearly orthogonal, so that the sign of a cosine between two of
them is nearly a coin. The way that the model went since some rounds ago is much longer than any
one update, the chain commits to both of its ends, and everybody can compute it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.reference.rule import DirectionWeight, ReferenceRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW = 20
SLOPE = 150.0
CAP = 3.0

TRAVEL = ReferenceRule(
    name="travel",
    travel=DirectionWeight(WINDOW, SLOPE, CAP),
    distance="direction",
    sentence="along the model's travel",
)


def displacement(before: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the travel w_s − w_t, which points as the updates do that made it.

    Args:
        before: w_s, shape (d,).
        now: w_t, shape (d,).

    Returns:
        Shape (d,), each number one subtraction in float32. All zeros, which have no direction,
        where one of them is not finite.

    Raises:
        ValueError: the models differ in length.
    """
    if before.shape != now.shape:
        raise ValueError(f"models of shapes {before.shape} and {now.shape} differ")
    with np.errstate(over="ignore", invalid="ignore"):
        found = before.astype(np.float32) - now.astype(np.float32)
    return found if np.isfinite(found).all() else np.zeros_like(found)
