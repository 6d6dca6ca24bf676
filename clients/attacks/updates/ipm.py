"""Inner-product manipulation (Xie, Koyejo, Gupta 2020, "Fall of Empires")."""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack


def ipm(attacker: AttackInput) -> Update:
    """Return −s times the mean of the colluders' honest updates, the same from each of them.

    With a small s it is near to everyone by squared distance, and still points backwards. A single
    attacker sends −s times its own update.
    """
    return (-attacker.factor * attacker.mean).astype(np.float32)


IPM = UpdateAttack(
    "ipm",
    ipm,
    factor=Factor(0.5, 0.01, 1000.0),
    is_common=True,
    sends="−s times the mean of the colluders' honest updates, the same from each of them",
    source='Inner-product manipulation (Xie, Koyejo, Gupta 2020, "Fall of Empires")',
)
