"""The worst that a search finds: back, full and stop (ours).

One search, three aims: against the honest mean, at the model of false labels, and against what
honest clients add to the travel. The honest are known by what they published in the round before.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from clients.attacks.updates.rule_aware.pulls import stolen_residuals, turned
from clients.attacks.updates.rule_aware.search import Behaviour, Candidate, searched
from clients.attacks.updates.rule_aware.target import goal
from clients.attacks.updates.update_attack import joint_attack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clients.attacks.updates.rule_aware.frame import Frame
    from clients.attacks.updates.update_attack import AttackInput

CANDIDATES = tuple(
    Candidate(base, angle, share, members, part)
    for base, angle, share, members, part in product(
        ("own", "noise", "stolen"),
        (15, 30, 45, 60, 70, 80, 90),
        (1.0, 0.5),
        (Behaviour.SAME, Behaviour.HONEST),
        (0.0, 0.3, 0.6),
    )
)


def back(frame: Frame) -> NDArray[np.float64]:
    """Return the reverse of the mean of honest unit updates, shape (1, k)."""
    return -frame.mean(frame.honest.rows)


def stop(frame: Frame) -> NDArray[np.float64]:
    """Return the reverse of what honest updates add to the travel, shape (1, k)."""
    return -frame.residual(frame.mean(frame.honest.rows))


def worst_back(attacker: AttackInput) -> NDArray[np.float32]:
    """Return what moves w most against the honest mean, of λ h + √(1 − λ²) unit(cos θ r + sin θ a).

    r is the own residual, noise, or the residual of an honest client; a is the aim. They, θ, λ, the
    share of trainers that act and whether members act are searched.
    """
    return searched(attacker, CANDIDATES, partial(_pull, back), back)


def worst_full(attacker: AttackInput) -> NDArray[np.float32]:
    """Return the same, aimed at the model of false labels."""
    return searched(attacker, CANDIDATES, partial(_pull, goal), goal)


def worst_stop(attacker: AttackInput) -> NDArray[np.float32]:
    """Return the same, aimed against what honest updates add to the travel."""
    return searched(attacker, CANDIDATES, partial(_pull, stop), stop)


def _pull(
    aim: Callable[[Frame], NDArray[np.float64]], frame: Frame, candidate: Candidate
) -> NDArray[np.float64]:
    if candidate.base == "stolen":
        base = stolen_residuals(frame, 1)
    else:
        rows = frame.own.rows if candidate.base == "own" else frame.noise.rows
        base = frame.residual(frame.row(*rows.tolist()))
    across = frame.residual(turned(frame, base, aim(frame), candidate.angle))
    part = candidate.part
    return np.asarray(part * frame.row(frame.travel) + np.sqrt(1 - part * part) * across)


WORST_BACK = joint_attack("worst-back", worst_back)
WORST_FULL = joint_attack("worst-full", worst_full)
WORST_STOP = joint_attack("worst-stop", worst_stop)
