"""The widest accepted angle to the members' references, for distances between directions.

Every vector here is a combination of the colluders' updates, the travel and one fixed direction,
stored as its coefficients; all angles follow from one table of inner products.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.adaptive.estimate import combined
from clients.attacks.updates.update_attack import AttackInput
from clients.random_streams import named_stream
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.direction import RIGHT_ANGLE, travel_weight

LENGTH = 2.0
"""Multiple of the median length, beyond which the distance of directions grows."""

_NOTHING = 1e-7
"""Length below which a combination of unit vectors is rounding error."""

_ANGLES = np.radians(np.arange(89, 0, -1))
"""Candidate angles from the references, the widest first: beyond a right angle acceptance is
chance, and slightly below it an update is hardly less harmful."""

_MARGIN = 2.0
"""Margin in standard errors of a committee's score."""


def across(attacker: AttackInput) -> NDArray[np.float64]:
    """Return 2 t (cos θ r + sin θ a), with the widest angle θ that is expected to be accepted.

    t is the median length of the colluders' updates, r the unit mean of their references: of unit
    updates u_c, or of u_c + b h if references follow a travel h. a is the unit vector of the
    attackers' aim, orthogonal to r: against the mean of the colluders' unit updates, and along one
    direction that is the same in every round. An accepted update is therefore honest in the
    direction that the committee measures, harmful at a right angle to it, and turns the travel
    slowly. A member, which is not scored, returns −2 t times the unit mean of the colluders' unit
    updates: honest updates are far from it, and a right angle is no farther than from any other
    reference.

    Args:
        attacker: one of at least two, with the rules of the run.
    """
    parameters = attacker.parameters
    assert parameters is not None, "only a committee scores"
    basis, length = _basis(attacker)
    table = basis @ basis.T
    count = len(attacker.colluders)
    units = np.eye(count, len(basis))
    if attacker.is_member:
        return np.asarray(-length * (_unit(units.mean(axis=0), table) @ basis))
    multiple = travel_weight(table[:-2, -2])
    references = (units + multiple * np.eye(1, len(basis), count)) / (1 + multiple)
    fans = [_fan(np.delete(units, c, 0), np.delete(references, c, 0), table) for c in range(count)]
    along, aside = (
        np.array([of @ table @ reference for of, reference in zip(part, references, strict=True)])
        for part in zip(*fans, strict=True)
    )
    best_along, best_aside = _fan(units, references, table)
    for angle in _ANGLES:
        cosines = np.cos(angle) * along + np.sin(angle) * aside
        if _pessimistic_score(parameters, np.maximum(2 - 2 * cosines, 0.0)) <= RIGHT_ANGLE:
            chosen = np.cos(angle) * best_along + np.sin(angle) * best_aside
            return np.asarray(length * (_unit(chosen, table) @ basis))
    return np.asarray(length * (best_along @ basis))


def _pessimistic_score(parameters: Parameters, distances: NDArray[np.float64]) -> float:
    error = float(distances.std()) / sqrt(parameters.members)
    return combined(distances) + _MARGIN * error


def _fan(
    units: NDArray[np.float64], references: NDArray[np.float64], table: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return r, the mean of references, and a, the aim at a right angle to it, as coefficients."""
    along = _unit(references.mean(axis=0), table)
    aim = -_unit(units.mean(axis=0), table)
    aim[-1] += 1.0
    return along, _unit(aim - (aim @ table @ along) * along, table)


def _basis(attacker: AttackInput) -> tuple[NDArray[np.float64], float]:
    """Return unit vectors (zero if there is no direction), and twice the median length.

    The colluders' updates come first, then the travel, last the fixed direction.
    """
    updates = attacker.colluders.astype(np.float64)
    lengths = np.sqrt((updates * updates).sum(axis=1))
    dimension = updates.shape[1]
    travel = np.zeros(dimension) if attacker.travel is None else attacker.travel.astype(np.float64)
    drift = named_stream(b"", "adaptive", dimension).standard_normal(dimension)
    basis = np.stack([*updates, travel, drift])
    norms = np.sqrt((basis * basis).sum(axis=1, keepdims=True))
    divided = np.divide(basis, norms, out=np.zeros_like(basis), where=norms > 0)
    return divided, LENGTH * float(np.median(lengths))


def _unit(vector: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coefficients of a unit vector; zeros if only rounding error is left."""
    norm = sqrt(max(float(vector @ table @ vector), 0.0))
    return vector / norm if norm > _NOTHING else np.zeros_like(vector)
