"""Mimic (Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets")."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack


def mimic(attacker: AttackInput) -> Update:
    """Return the honest update of one fixed colluder, Δ_i*, the same from each of them.

    No rule can call it dishonest; what it does is to count one client's data many times. i* is the
    first of the attackers that are active in the round. The paper mimics an honest client that it
    picks by all honest updates, which nobody sees here. One attacker alone sends its own update.

    Args:
        attacker: whose colluders are ascending by client.
    """
    return np.array(attacker.colluders[0])


MIMIC = UpdateAttack("mimic", mimic, is_common=True)
