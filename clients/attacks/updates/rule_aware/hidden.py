"""Noise: a pull hidden in noise (ours).

Attackers that pull the same way are near to one another once the common direction is taken out.
Noise of each attacker's own hides that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.frame import LENGTH, Frame
from clients.attacks.updates.rule_aware.pulls import turned
from clients.attacks.updates.rule_aware.target import goal
from clients.attacks.updates.update_attack import AttackInput, Factor, joint_attack

ALONG_TRAVEL = 0.3
"""Part of the travel beside a hidden pull of length 1: about that of an honest update."""


def noise(attacker: AttackInput) -> NDArray[np.float32]:
    """Return s t (unit(cos θ z_i + sin θ p) + 0.3 h), z_i Gaussian noise of each attacker's own.

    θ, in degrees, is the attack's factor.
    """
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    frame = Frame.of(attacker)
    pulls = turned(frame, frame.row(frame.noise), goal(frame), attacker.factor)
    pulls += ALONG_TRAVEL * frame.row(frame.travel)
    return (LENGTH * frame.length * pulls @ frame.vectors).astype(np.float32)


NOISE = joint_attack(
    "noise",
    noise,
    factor=Factor(30.0, 0.0, 90.0),
    sends=("s t (unit(cos θ z_i + sin θ p) + 0.3 h), z_i Gaussian noise of each attacker's own"),
    source="Noise: a pull hidden in noise (ours)",
)
