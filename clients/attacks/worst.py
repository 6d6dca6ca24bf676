"""Attacks that know the rule, its history and a goal (ours): target, noise, worst and half.

The colluders play a round for each candidate and send the one that moves w most along their aim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.attacks.played_rounds import LENGTH, Frame, can_estimate, estimated_effects, games
from clients.attacks.updates import AttackInput, Factor, joint_attack

TIE = 1e-5
"""Part of an effect below which two effects differ by rounding alone."""

MARGIN = 1e-4
"""Part of an effect by which an estimate may differ from it: updates are rounded to float32."""


class Behaviour(Enum):
    """What colluding members send: as the trainers, their honest update, or that reversed."""

    SAME = auto()
    HONEST = auto()
    REVERSED = auto()


@dataclass(frozen=True, slots=True)
class Candidate:
    """What colluders may do in a round.

    Attributes:
        angle: θ from it to the aim, in degrees.
        share: of the attacking trainers that act; the others are honest.
    """

    base: str
    angle: float
    share: float
    members: Behaviour
    part: float = 0.0


Pull = Callable[[Frame, Candidate], NDArray[np.float64]]
"""Returns the direction that each colluder sends, unit combinations of shape (colluders, k)."""


def searched(
    attacker: AttackInput,
    candidates: Sequence[Candidate],
    pull: Pull,
    aim: Callable[[Frame], NDArray[np.float64]],
    rounds: int = 2,
    length: float = LENGTH,
) -> NDArray[np.float32]:
    """Return the updates of all colluders, (colluders, d), that move the model most along an aim.

    The first of the best candidates is taken; they differ by rounding alone. The honest updates are
    returned where one of them is not finite.

    Args:
        aim: makes the aim, as an update points, of shape (1, k).
        length: s, of what is sent, in median lengths of the colluders' updates.
    """
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    attacker = replace(attacker, published=attacker.published[:rounds])
    frame = Frame.of(attacker)
    played = games(attacker, frame)
    direction = (aim(frame) @ played[0].coordinates)[0]
    pulls: dict[tuple[str, float, float], NDArray[np.float64]] = {}
    sent: list[NDArray[np.float64]] = []
    for candidate in candidates:
        key = (candidate.base, candidate.angle, candidate.part)
        if key not in pulls:
            pulls[key] = pull(frame, candidate)
        sent.append(updates_of(attacker, frame, candidate, pulls[key], length))
    estimates = np.full(len(candidates), np.inf)
    if can_estimate(attacker):
        estimates = np.sum([estimated_effects(game, sent, direction) for game in played], axis=0)

    def effect(index: int) -> float:
        return sum(float(game.step(sent[index]) @ direction) for game in played)

    return (sent[best_of(estimates, effect)] @ frame.vectors).astype(np.float32)


def best_of(estimates: NDArray[np.float64], effect: Callable[[int], float]) -> int:
    """Return the first candidate of the largest effect, but for `TIE`.

    The estimates are true up to `MARGIN`; infinite ones are always played.
    """
    effects: dict[int, float] = {}
    largest = -np.inf
    for index in np.argsort(-estimates, kind="stable").tolist():
        if estimates[index] < largest - (TIE + MARGIN) * abs(largest):
            break
        effects[index] = effect(index)
        largest = max(largest, effects[index])
    least = largest - TIE * abs(largest)
    return min(index for index, effect in effects.items() if effect >= least)


def updates_of(
    attacker: AttackInput,
    frame: Frame,
    candidate: Candidate,
    directions: NDArray[np.float64],
    length: float = LENGTH,
) -> NDArray[np.float64]:
    """Return the coefficients of what each colluder sends along its direction."""
    sent = frame.norms[frame.own][:, None] * frame.row(frame.own)
    members = [row for row in attacker.seats if row not in attacker.idle]
    passive = {*attacker.seats, *attacker.idle}
    trainers = [row for row in range(len(sent)) if row not in passive]
    acting = trainers[: int(np.ceil(candidate.share * len(trainers)))]
    if candidate.members is Behaviour.SAME:
        acting += members
    elif candidate.members is Behaviour.REVERSED:
        sent[members] *= -1
    sent[acting] = length * frame.length * directions[acting]
    return sent


def turned(
    frame: Frame, base: NDArray[np.float64], aim: NDArray[np.float64], degrees: float
) -> NDArray[np.float64]:
    """Return unit(cos θ b + sin θ p) for each b, shape (colluders, k).

    The aim p has shape (1, k), and so may the base b, of unit combinations.
    """
    angle = np.radians(degrees)
    count = len(frame.own)
    combined = np.cos(angle) * base + np.sin(angle) * aim
    return frame.unit(np.broadcast_to(combined, (count, combined.shape[1])).copy())


def stolen_residuals(frame: Frame) -> NDArray[np.float64]:
    """Return residuals of honest clients, one for each colluder, shape (colluders, k)."""
    rows = frame.honest[np.arange(len(frame.own)) % len(frame.honest)]
    return frame.residual(frame.row(rows))


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
