"""Adaptive: knows the rule in force, and stays just inside it (ours).

After Tramèr, Carlini, Brendel, Madry 2020 ("On Adaptive Attacks to Adversarial Example Defenses"):
a rule is worth what an attacker that knows it leaves of it. The search along one line is Shejwalkar
and Houmansadr's (2021), with the rule's own judgement in the place of a distance.
"""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.adaptive.angle_search import across
from clients.attacks.updates.adaptive.step_search import FARTHEST, against
from clients.attacks.updates.min_max import min_max
from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack
from ledger.protocol.types import AcceptanceForm


def adaptive(attacker: AttackInput) -> Update:
    """Return the most harmful update that the colluders expect to be accepted, the same from all.

    Under a distance between updates that is `against`, under one between directions `across`; under
    strategy II, which accepts the farthest, −100 times the colluders' mean; without a committee,
    whose rules are needed, Min-Max. A single attacker has nothing to estimate by, and sends its own
    update.

    Args:
        attacker: with the rules of the run, and the travel if they have one.
    """
    if len(attacker.colluders) == 1:
        return np.array(attacker.colluders[0])
    if attacker.parameters is None:
        return min_max(attacker)
    if attacker.parameters.form is AcceptanceForm.LAST:
        forged = -FARTHEST * attacker.mean
    elif attacker.parameters.compares_directions:
        forged = across(attacker)
    else:
        forged = against(attacker)
    return forged.astype(np.float32)


ADAPTIVE = UpdateAttack(
    "adaptive",
    adaptive,
    is_common=True,
    sends=("the most harmful update that the colluders expect to be accepted, the same from all"),
    source="Adaptive: knows the rule in force, and stays just inside it (ours)",
)
