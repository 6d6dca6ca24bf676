"""ALIE (Baruch, Baruch, Goldberg 2019, "A Little Is Enough")."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack

OF_THE_PAPER = 0.0
"""The factor that selects the paper's own z."""


def alie(attacker: AttackInput) -> Update:
    """Return μ − z σ, element by element: a shift within the spread of honest updates.

    μ and σ are mean and standard deviation of the colluders' honest updates, as an estimate for all
    clients. A single attacker has no spread, and sends its own update.

    Args:
        attacker: with z as its factor; 0 for `largest_z` of the round.
    """
    z = attacker.factor
    if z == OF_THE_PAPER:
        z = largest_z(attacker.trainers, attacker.attacking_trainers)
    deviation = attacker.colluders.std(axis=0, dtype=np.float64)
    return np.asarray(attacker.mean - z * deviation, dtype=np.float32)


def largest_z(clients: int, attackers: int) -> float:
    """Return Φ⁻¹((n − f − s) / (n − f)), s = ⌊n/2 + 1⌋ − f.

    s honest clients have to be farther out than the attackers to put these into the majority. With
    so few attackers that more than half of the honest would be needed it is 0; a majority of
    attackers needs one.

    Args:
        clients: n, the clients whose updates may enter the model.
    """
    honest = clients - attackers
    supporters = max(clients // 2 + 1 - attackers, 1)
    share = (honest - supporters) / honest if honest > 0 else 0.0
    return NormalDist().inv_cdf(share) if share > 1 / 2 else 0.0


ALIE = UpdateAttack(
    "alie",
    alie,
    factor=Factor(OF_THE_PAPER, 0.0, 10.0),
    is_common=True,
    sends="μ − z σ, element by element: a shift within the spread of honest updates",
    source='ALIE (Baruch, Baruch, Goldberg 2019, "A Little Is Enough")',
)
