"""The colluders' estimate of a round's judgement: each of them represents an honest client.

They score one another as a committee of their own, without the pair of an update and itself, which
is always near.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.update_attack import AttackInput


def combined(distances: NDArray[np.float64]) -> float:
    """Return the score of one update from its distances to each colluder, shape (colluders,)."""
    return float(distances.mean())


def accepted_up_to(attacker: AttackInput, distances: NDArray[np.float64]) -> float:
    """Return the largest score that the colluders expect to be accepted.

    Under strategy I all attackers have one score, and are accepted if at most m − f of the n − f
    honest trainers are nearer: the score at that share of the colluders' own.

    Args:
        distances: between the colluders' honest updates, member by trainer, shape (colluders,
            colluders), at least two of them.
    """
    parameters = attacker.parameters
    assert parameters is not None, "only a committee scores"
    others = ~np.eye(len(distances), dtype=bool)
    columns = zip(distances.T, others.T, strict=True)
    scores = sorted(combined(column[mask]) for column, mask in columns)
    honest = max(attacker.trainers - attacker.attacking_trainers, 1)
    nearer = max(parameters.accepted - attacker.attacking_trainers, 0) / honest
    return scores[min(int(nearer * len(scores)), len(scores) - 1)]
