"""Back-gradient, of the paper's "Robustness Comparative Experiment", with optional scaling."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack


def back_gradient(attacker: AttackInput) -> Update:
    """Return −s Δ, the update in the opposite direction."""
    return (-attacker.factor * attacker.own).astype(np.float32)


# The paper has no factor.
BACK_GRADIENT = UpdateAttack(
    "back-gradient",
    back_gradient,
    factor=Factor(1.0, 0.01, 1000.0),
    sends="−s Δ, the update in the opposite direction",
    source=(
        'Back-gradient, of the paper\'s "Robustness Comparative Experiment", with optional scaling'
    ),
)
