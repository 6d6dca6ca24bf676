"""Min-Max (Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack


def min_max(attacker: AttackInput) -> Update:
    """Return the colluders' mean, moved backwards as far as it stays inconspicuous.

    That is mean − γ mean (the paper's inverse unit vector), with the largest γ for which its
    distance from any colluder's honest update is at most the largest distance between two of these.
    A single attacker sends its own update.

    Args:
        attacker: its colluders' honest updates estimate everyone's, which it cannot see.
    """
    honest = attacker.colluders.astype(np.float64)
    mean = attacker.mean
    forged = (1 - largest_step(honest, mean, -mean)) * mean
    return np.asarray(forged, dtype=np.float32)


def largest_step(
    honest: NDArray[np.float64], start: NDArray[np.float64], direction: NDArray[np.float64]
) -> float:
    """Return the largest γ for which start + γ direction keeps to the widest distance.

    No search: for each update γ is a root of |γ p + r|² = D².

    Args:
        honest: the updates, shape (n, d).
        start: a point within their widest distance of all of them, shape (d,).
        direction: shape (d,).

    Returns:
        At least 0; 0 for a zero direction.
    """
    slope = float(direction @ direction)
    if slope == 0:
        return 0.0
    widest = max(float(((update - honest) ** 2).sum(axis=1).max()) for update in honest)
    offsets = start - honest
    half = offsets @ direction
    room = np.maximum(widest - (offsets**2).sum(axis=1), 0.0)
    return float(((np.sqrt(half**2 + slope * room) - half) / slope).min())


MIN_MAX = UpdateAttack(
    "min-max",
    min_max,
    is_common=True,
    sends="the colluders' mean, moved backwards as far as it stays inconspicuous",
    source='Min-Max (Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine")',
)
