"""Inner-product manipulation (Xie, Koyejo, Gupta 2020, "Fall of Empires")."""

from __future__ import annotations

import numpy as np

from clients.adversaries.updates.attack import AttackInput, Factor, Update, UpdateAttack


def inner_product(attacker: AttackInput) -> Update:
    """Return −s times the mean of the colluders' honest updates, the same from each of them.

    A small s lies near to everybody, for squared distance, and still points backwards.

    Args:
        attacker: with s as its factor.
    """
    mean = attacker.colluders.mean(axis=0, dtype=np.float64)
    return np.asarray(-attacker.factor * mean, dtype=np.float32)


INNER_PRODUCT = UpdateAttack("inner-product", inner_product, Factor(0.5, 0.01, 1000.0))
