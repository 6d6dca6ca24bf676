"""Gradient scaling, of the paper's "Robustness Comparative Experiment"."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack


def gradient_scaling(attacker: AttackInput) -> Update:
    """Return the update with each element multiplied by its own draw from [a, 1).

    Args:
        attacker: with a as its factor; smaller is stronger.
    """
    floor = attacker.factor
    factors = floor + (1.0 - floor) * attacker.rng.random(attacker.own.shape)
    return (attacker.own * factors).astype(np.float32)


# The paper uses 0.5 too.
GRADIENT_SCALING = UpdateAttack(
    "gradient-scaling",
    gradient_scaling,
    factor=Factor(0.5, 0.0, 1.0),
    sends="the update with each element multiplied by its own draw from [a, 1)",
    source='Gradient scaling, of the paper\'s "Robustness Comparative Experiment"',
)
