"""Gaussian noise (Blanchard et al. 2017, "Machine Learning with Adversaries")."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack


def gaussian(attacker: AttackInput) -> Update:
    """Return noise instead of the update: each element drawn from N(0, s² ‖Δ‖² / d).

    The standard deviation is s times the root mean square of the attacker's own update, so noise
    with s = 1 has the length of an honest update.
    """
    own = attacker.own.astype(np.float64)
    deviation = attacker.factor * float(np.sqrt(np.mean(own * own)))
    return (deviation * attacker.rng.standard_normal(own.shape)).astype(np.float32)


# Blanchard et al. use a standard deviation of 200, whatever the updates' scale.
GAUSSIAN = UpdateAttack(
    "gaussian",
    gaussian,
    factor=Factor(1.0, 0.01, 1000.0),
    sends="noise instead of the update: each element drawn from N(0, s² ‖Δ‖² / d)",
    source='Gaussian noise (Blanchard et al. 2017, "Machine Learning with Adversaries")',
)
