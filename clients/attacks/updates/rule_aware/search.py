"""The search: the colluders play a round for each candidate and take the one that moves w most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.estimate import can_estimate, estimated_effects
from clients.attacks.updates.rule_aware.frame import LENGTH, Frame
from clients.attacks.updates.rule_aware.game import games
from clients.attacks.updates.update_attack import AttackInput

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
    """Return the updates of all colluders that move the model most along an aim.

    Args:
        candidates: the first of the best is taken, which differ by rounding alone.
        aim: makes the aim, as an update points, of shape (1, k).
        length: s, of what is sent, in median lengths of the colluders' updates.

    Returns:
        Shape (colluders, d); the honest updates where one of them is not finite.
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

    Args:
        estimates: of the effects, true up to `MARGIN`; infinite ones are always played.
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
    """Return the coefficients of what each colluder sends, shape (colluders, k).

    Args:
        directions: unit combinations, shape (colluders, k).
    """
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
