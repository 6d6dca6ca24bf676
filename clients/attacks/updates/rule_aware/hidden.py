"""Noise and frame: a pull hidden in noise, and attackers that crowd around honest clients (ours).

Attackers that pull the same way are near to one another once the common direction is taken out.
Noise of each one's own hides that; stolen residuals let honest clients look crowded instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.attacks.updates.rule_aware.frame import LENGTH, Frame
from clients.attacks.updates.rule_aware.pulls import stolen_residuals, turned
from clients.attacks.updates.rule_aware.target import goal
from clients.attacks.updates.update_attack import Factor, joint_attack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clients.attacks.updates.update_attack import AttackInput

ALONG_TRAVEL = 0.3
"""Part of the travel beside a hidden pull of length 1: about that of an honest update."""

AROUND_ONE = 3
"""Attackers around each honest client."""


def noise(attacker: AttackInput) -> NDArray[np.float32]:
    """Return s t (unit(cos θ z_i + sin θ p) + 0.3 h), z_i Gaussian noise of each attacker's own.

    Args:
        attacker: with θ in degrees as its factor.
    """
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    frame = Frame.of(attacker)
    return _hidden(attacker, frame, frame.row(*frame.noise.rows.tolist()))


def frame_honest(attacker: AttackInput) -> NDArray[np.float32]:
    """Return s t (unit(cos θ r_v + sin θ p) + 0.3 h), r_v an honest client's residual.

    Three attackers share each r_v: what the client published in the round before, without its part
    along the travel; where these are too few, in the one before that. Before anything is published
    it is one of their own.

    Args:
        attacker: with θ in degrees as its factor.
    """
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    frame = Frame.of(attacker)
    return _hidden(attacker, frame, stolen_residuals(frame, AROUND_ONE))


def _hidden(attacker: AttackInput, frame: Frame, base: NDArray[np.float64]) -> NDArray[np.float32]:
    pulls = turned(frame, base, goal(frame), attacker.factor)
    pulls += ALONG_TRAVEL * frame.row(frame.travel)
    return (LENGTH * frame.length * pulls @ frame.vectors).astype(np.float32)


NOISE = joint_attack("noise", noise, Factor(30.0, 0.0, 90.0))
FRAME = joint_attack("frame", frame_honest, Factor(0.0, 0.0, 90.0))
