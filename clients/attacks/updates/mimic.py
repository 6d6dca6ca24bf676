"""Mimic (Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets")."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack


def mimic(attacker: AttackInput) -> Update:
    """Return the honest update of one fixed colluder, Δ_i*, the same from each of them.

    No rule can call it dishonest; it counts one client's data many times. i* is the first of the
    attackers that are active in the round. The paper mimics an honest client chosen by all honest
    updates, which attackers do not see here. A single attacker sends its own update.
    """
    return np.array(attacker.colluders[0])


MIMIC = UpdateAttack(
    "mimic",
    mimic,
    is_common=True,
    sends="the honest update of one fixed colluder, Δ_i*, the same from each of them",
    source=(
        'Mimic (Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets")'
    ),
)
