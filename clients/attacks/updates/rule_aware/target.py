"""Target: a model of false labels, approached as fast as the rule lets it (ours).

p = unit(w_t − w_bad) points to a model that the colluders have trained on their own samples, each
labelled as the next class. They send s t unit(cos θ b + sin θ p): as much of p as goes unnoticed
beside an honest-looking b, t the median length of their honest updates and s = 2.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.frame import Frame
from clients.attacks.updates.rule_aware.pulls import turned
from clients.attacks.updates.rule_aware.search import Behaviour, Candidate, searched
from clients.attacks.updates.update_attack import AttackInput, joint_attack

TARGET_CANDIDATES = tuple(
    Candidate(base, angle, share, members)
    for base, angle, share, members in product(
        ("own", "reference", "travel"),
        (20, 30, 40, 50, 60, 70, 80, 90),
        (1.0, 0.5),
        Behaviour,
    )
)


def target(attacker: AttackInput) -> NDArray[np.float32]:
    """Return the updates that move w most along p when the colluders play the rule.

    θ, b (the own update, the mean of the colluders' units, or the travel), the share of trainers
    that act and the members' behaviour are searched.
    """
    return searched(attacker, TARGET_CANDIDATES, _target_pull, goal, rounds=1)


def goal(frame: Frame) -> NDArray[np.float64]:
    """Return p, shape (1, k)."""
    return frame.row(frame.goal)


def _target_pull(frame: Frame, candidate: Candidate) -> NDArray[np.float64]:
    own = frame.row(frame.own)
    base = {
        "own": own,
        "reference": frame.mean(frame.own),
        "travel": frame.row(frame.travel),
    }[candidate.base]
    return turned(frame, base, goal(frame), candidate.angle)


TARGET = joint_attack(
    "target",
    target,
    sends="the updates that move w most along p when the colluders play the rule",
    source="Target: a model of false labels, approached as fast as the rule lets it (ours)",
)
