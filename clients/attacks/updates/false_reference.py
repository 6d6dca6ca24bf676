"""False reference: honest as a trainer, a wild update as a member (ours).

No one scores a member, and everyone is scored against its update. With the mean over members one
update of −100 Δ reverses a round's ranking, however honest the scores are.
"""

from __future__ import annotations

import numpy as np

from clients.attacks.updates.update_attack import AttackInput, Factor, Update, UpdateAttack

AS_TRAINER = 0.5
"""Factor s of the inner-product manipulation as a trainer."""


def false_reference(attacker: AttackInput) -> Update:
    """Return −s Δ̄ as a trainer (`ipm`), and −F Δ as a member: the update reversed, F times.

    Δ̄ is the mean of the colluders' honest updates, s = 0.5; one attacker alone is its own mean.
    """
    if attacker.is_member:
        return (-attacker.factor * attacker.own.astype(np.float64)).astype(np.float32)
    return (-AS_TRAINER * attacker.mean).astype(np.float32)


FALSE_REFERENCE = UpdateAttack(
    "false-reference",
    false_reference,
    factor=Factor(10.0, 0.01, 1000.0),
    sends="−s Δ̄ as a trainer (`ipm`), and −F Δ as a member: the update reversed, F times",
    source="False reference: honest as a trainer, a wild update as a member (ours)",
)
