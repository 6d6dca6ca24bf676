"""Same value, of the paper's "Robustness Comparative Experiment"."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack


def same_value(attacker: AttackInput) -> Update:
    """Return a zero vector, the value in the authors' code.

    Squared distance calls it near: short vectors are near to everyone.

    Args:
        attacker: only the shape of its update is used.
    """
    return np.zeros_like(attacker.own)


SAME_VALUE = UpdateAttack(
    "same-value",
    same_value,
    sends="a zero vector, the value in the authors' code",
    source='Same value, of the paper\'s "Robustness Comparative Experiment"',
)
