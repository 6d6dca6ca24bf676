"""The worst that a search finds: back, drift, full and half (ours).

One search, three aims: against the honest mean of the two rounds before, against the way that
honest clients took in all rounds before, and at the model of false labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.frame import Frame
from clients.attacks.updates.rule_aware.pulls import stolen_residuals, turned
from clients.attacks.updates.rule_aware.search import Behaviour, Candidate, searched
from clients.attacks.updates.rule_aware.target import goal
from clients.attacks.updates.update_attack import AttackInput, Factor, joint_attack

WORST_CANDIDATES = tuple(
    Candidate(base, angle, share, members, part)
    for base, angle, share, members, part in product(
        ("own", "noise", "stolen"),
        (15, 30, 45, 60, 75, 90, 120),
        (1.0, 0.5),
        (Behaviour.HONEST, Behaviour.SAME),
        (0.0, 0.5, 1.0),
    )
)

STRIKE = 1e4
"""s of `half`: so long that one round destroys a model that it enters at its length."""


def back(frame: Frame) -> NDArray[np.float64]:
    """Return the reverse of the unit mean of honest updates, shape (1, k)."""
    rows = frame.honest
    return -frame.unit((frame.norms[rows] @ frame.row(rows))[None, :])


def drift(frame: Frame) -> NDArray[np.float64]:
    """Return the reverse of e, shape (1, k)."""
    return -frame.row(frame.drift)


def _worst(
    aim: Callable[[Frame], NDArray[np.float64]], attacker: AttackInput, **more: Any
) -> NDArray[np.float32]:
    """Return what moves w most along an aim a, of unit(cos θ unit(r + λ h) + sin θ a).

    r is the own unit update, noise, or the residual of an honest client. It, θ, λ, the share of
    trainers that act and whether members act are searched.
    """
    return searched(attacker, WORST_CANDIDATES, partial(_worst_pull, aim), aim, **more)


def half(attacker: AttackInput) -> NDArray[np.float32]:
    """Return honest updates until colluders send half of a round's, and then far too long ones.

    Half of a round's updates have the others rejected, and so set what bounds a length, where that
    follows from the accepted ones. Then it is the search of `worst_full` at `STRIKE` lengths.
    """
    sending = len(attacker.colluders) - len(attacker.idle)
    if 2 * sending < attacker.members + attacker.trainers:
        return attacker.colluders.copy()
    return _worst(goal, attacker, length=STRIKE)


def _worst_pull(
    aim: Callable[[Frame], NDArray[np.float64]], frame: Frame, candidate: Candidate
) -> NDArray[np.float64]:
    if candidate.base == "stolen":
        base = stolen_residuals(frame)
    else:
        rows = frame.own if candidate.base == "own" else frame.noise
        base = frame.row(rows)
    shown = frame.unit(base + candidate.part * frame.row(frame.travel))
    return turned(frame, shown, aim(frame), candidate.angle)


WORST_BACK = joint_attack(
    "worst-back",
    partial(_worst, back),
    sends=("what moves w most against the honest mean, of unit(cos θ unit(r + λ h) + sin θ a)"),
    source="The worst that a search finds: back, drift, full and half (ours)",
)
WORST_DRIFT = joint_attack(
    "worst-drift",
    partial(_worst, drift),
    sends="the same, aimed against the way that honest clients took in all rounds before",
    source="The worst that a search finds: back, drift, full and half (ours)",
)
WORST_FULL = joint_attack(
    "worst-full",
    partial(_worst, goal),
    sends="the same, aimed at the model of false labels",
    source="The worst that a search finds: back, drift, full and half (ours)",
)
# `worst-drift`, by attackers that register k times their samples.
MANY_SAMPLES = joint_attack(
    "many-samples",
    partial(_worst, drift),
    factor=Factor(10.0, 1.0, 1000.0),
    multiplies_samples=True,
    sends=("the updates of `worst_drift`, from attackers that register k times their samples"),
    source="The worst that a search finds: back, drift, full and half (ours)",
)
HALF = joint_attack(
    "half",
    half,
    sends=("honest updates until colluders send half of a round's, and then far too long ones"),
    source="The worst that a search finds: back, drift, full and half (ours)",
)
