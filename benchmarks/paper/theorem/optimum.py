"""The minimum of a strongly convex objective: full-batch L-BFGS in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from benchmarks.paper.theorem.objective import Objective, Weights
from ledger.protocol.errors import ConfigurationError

GRADIENT_NORM = 1e-6
"""‖∇F‖ below which a point counts as the minimum: F is then within 1e-12 / (2 mu) of F*."""

MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """A minimum: w* and F*."""

    weights: Weights
    value: float


def minimum(objective: Objective, most_steps: int = MOST_STEPS) -> Optimum:
    """Return the minimum of an objective; refuse a mu that is too small to find it."""
    shape = objective.classes, objective.inputs.shape[1]
    found = minimize(
        lambda flat: objective.value(flat.reshape(shape)),
        np.zeros(shape).ravel(),
        jac=lambda flat: objective.gradient(flat.reshape(shape)).ravel(),
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "maxiter": most_steps,
            "maxfun": 4 * most_steps,
            "ftol": 0.0,
            # The largest element; the norm of all of them is compared below.
            "gtol": GRADIENT_NORM / np.sqrt(shape[0] * shape[1]),
        },
    )
    weights: Weights = found.x.reshape(shape)
    norm = float(np.linalg.norm(objective.gradient(weights)))
    if not norm < GRADIENT_NORM:
        raise ConfigurationError(
            f"mu = {objective.mu}: the gradient is {norm:.3g} where it should be below "
            f"{GRADIENT_NORM:g}; a larger mu makes the minimum easier to find"
        )
    return Optimum(weights, float(found.fun))
