"""The minimum of a strongly convex objective: full-batch L-BFGS in float64.

Nocedal and Wright, "Numerical Optimization", algorithms 7.4 and 7.5. Steps are halved until they
lessen the value enough (Armijo). No condition on curvature is needed: where a function is
strongly convex, a step and the change of its gradient never point apart.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.paper.theorem.objective import Objective, Weights

    Change = tuple[Weights, Weights, float]

GRADIENT_NORM = 1e-6
"""‖∇F‖ below which a point is taken for the minimum: F is then within 1e-12 / (2 mu) of F*."""

MOST_STEPS = 10_000

_REMEMBERED = 20
_ENOUGH = 1e-4  # of the decrease that the slope promises
_ROUNDING = 1e-15  # of the value: so much two equal values may differ
_SHORTEST = 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """A minimum of an objective.

    Attributes:
        weights: w*.
        value: F*.
    """

    weights: Weights
    value: float


def minimum(objective: Objective, most_steps: int = MOST_STEPS) -> Optimum:
    """Return the minimum of an objective.

    Args:
        objective: strongly convex.
        most_steps: after which it is given up.

    Raises:
        ConfigurationError: the gradient stays above `GRADIENT_NORM`: mu is too small.
    """
    weights: Weights = np.zeros((objective.classes, objective.inputs.shape[1]))
    value, gradient = objective.value(weights), objective.gradient(weights)
    changes: deque[Change] = deque(maxlen=_REMEMBERED)
    for _ in range(most_steps):
        if _norm(gradient) < GRADIENT_NORM:
            break
        next_point = _next(objective, weights, value, gradient, _direction(gradient, changes))
        if next_point is None:
            break
        moved, value = next_point
        turned = objective.gradient(moved)
        step, change = moved - weights, turned - gradient
        curvature = float(np.sum(step * change))
        if curvature > 0:  # it always is, but for the last bits of a step that hardly was one
            changes.append((step, change, curvature))
        weights, gradient = moved, turned
    if not _norm(gradient) < GRADIENT_NORM:
        raise ConfigurationError(
            f"mu = {objective.mu}: the gradient is {_norm(gradient):.3g} where it should be below "
            f"{GRADIENT_NORM:g}; a larger mu makes the minimum easier to find"
        )
    return Optimum(weights, value)


def _norm(gradient: Weights) -> float:
    return float(np.sqrt(np.sum(gradient * gradient)))


def _direction(gradient: Weights, changes: Iterable[Change]) -> Weights:
    """Return −H ∇F, H the inverse Hessian as the last changes tell it (algorithm 7.4)."""
    recent = list(changes)
    direction, factors = -gradient, []
    for step, change, curvature in reversed(recent):
        share = float(np.sum(step * direction)) / curvature
        direction = direction - share * change
        factors.append(share)
    if recent:
        _, change, curvature = recent[-1]
        direction = direction * (curvature / float(np.sum(change * change)))
    for (step, change, curvature), share in zip(recent, reversed(factors), strict=True):
        direction = direction + (share - float(np.sum(change * direction)) / curvature) * step
    return direction


def _next(
    objective: Objective, weights: Weights, value: float, gradient: Weights, direction: Weights
) -> tuple[Weights, float] | None:
    """Return the point that a step along the direction leads to; None where none is lower."""
    slope = float(np.sum(gradient * direction))
    length = 1.0
    while length >= _SHORTEST:
        moved = weights + length * direction
        value_there = objective.value(moved)
        if value_there <= value + _ENOUGH * length * slope + _ROUNDING * abs(value):
            return moved, value_there
        length /= 2
    return None
