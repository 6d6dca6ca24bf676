"""Directions that colluders send: an honest-looking part, turned towards an aim."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.frame import Frame


def turned(
    frame: Frame, base: NDArray[np.float64], aim: NDArray[np.float64], degrees: float
) -> NDArray[np.float64]:
    """Return unit(cos θ b + sin θ p) for each b, shape (colluders, k).

    Args:
        base: b, unit combinations, shape (colluders, k) or (1, k).
        aim: p, shape (1, k).
    """
    angle = np.radians(degrees)
    count = len(frame.own)
    combined = np.cos(angle) * base + np.sin(angle) * aim
    return frame.unit(np.broadcast_to(combined, (count, combined.shape[1])).copy())


def stolen_residuals(frame: Frame) -> NDArray[np.float64]:
    """Return residuals of honest clients, one for each colluder, shape (colluders, k)."""
    rows = frame.honest[np.arange(len(frame.own)) % len(frame.honest)]
    return frame.residual(frame.row(rows))
