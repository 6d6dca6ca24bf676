"""The adaptive attack (ours): it knows the rule in force, and stays just inside it.

The colluders score one another as a committee of their own. Vectors are coefficients of their
updates, the travel and one fixed direction; angles follow from one table of inner products. The
search along a line is Shejwalkar and Houmansadr's (2021), with the rule in place of a distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates import AttackInput, Update, UpdateAttack, described, min_max
from clients.datasets.federated_data import named_stream
from ledger.protocol.rules.direction import RIGHT_ANGLE, travel_weight
from ledger.protocol.types import AcceptanceForm

Floats = NDArray[np.float64]


def accepted_up_to(attacker: AttackInput, distances: Floats) -> float:
    """Return the largest score that the colluders expect to be accepted.

    Attackers are accepted if at most m − f of the n − f honest trainers are nearer: the score at
    that share of the colluders' own, whose distances have shape (colluders, colluders).
    """
    parameters = attacker.parameters
    assert parameters is not None, "only a committee scores"
    others = ~np.eye(len(distances), dtype=bool)
    columns = zip(distances.T, others.T, strict=True)
    scores = sorted(float(column[mask].mean()) for column, mask in columns)
    honest = max(attacker.trainers - attacker.attacking_trainers, 1)
    nearer = max(parameters.accepted - attacker.attacking_trainers, 0) / honest
    return scores[min(int(nearer * len(scores)), len(scores) - 1)]


FARTHEST = 100.0  # largest multiple of the mean


def against(attacker: AttackInput) -> Floats:
    """Return −s Δ̄ with the largest s in [−1, 100] that is expected to be accepted, or s = −1."""
    products = inner_products(attacker.colluders)
    limit = accepted_up_to(attacker, pair_distances(products))
    line = Line.of(products)

    def is_accepted(step: float) -> bool:
        return float(line.distances(step).mean()) <= limit

    return -largest(is_accepted, -1.0, FARTHEST) * attacker.mean


def largest(is_accepted: Callable[[float], bool], least: float, most: float) -> float:
    """Return the largest accepted number by bisection, `least` if none is: it is monotone."""
    if is_accepted(most):
        return most
    for _ in range(60):  # the remaining interval is below float32 precision
        middle = (least + most) / 2
        if is_accepted(middle):
            least = middle
        else:
            most = middle
    return least


@dataclass(frozen=True, slots=True)
class Line:
    """Squared distances of −s Δ̄ from each update Δ_c, Δ̄ the mean of all the others."""

    own: Floats
    across: Floats
    mean: Floats

    @classmethod
    def of(cls, products: Floats) -> Line:
        others = len(products) - 1
        own, rows = np.diagonal(products), products.sum(axis=1)
        mean = (rows.sum() - 2 * rows + own) / others**2
        return cls(own, (rows - own) / others, mean)

    def distances(self, step: float) -> Floats:
        """Return the squared distance of −s Δ̄ from each colluder's update for a step s."""
        squares = step * step * self.mean + 2 * step * self.across + self.own
        return np.maximum(squares, 0.0)  # rounding may make it negative for equal updates


def inner_products(updates: NDArray[np.float32]) -> Floats:
    """Return the inner products of updates of shape (k, d), shape (k, k)."""
    wide = updates.astype(np.float64)
    return np.asarray(wide @ wide.T)


def pair_distances(products: Floats) -> Floats:
    """Return the squared distances between updates from their inner products, shape (k, k)."""
    own = np.diagonal(products)
    return np.maximum(own[:, None] + own[None, :] - 2 * products, 0.0)


LENGTH = 2.0  # multiple of the median length, beyond which the distance of directions grows
_ANGLES = np.radians(np.arange(89, 0, -1))
"""Candidate angles from the references, the widest first: beyond a right angle acceptance is
chance, and slightly below it an update is hardly less harmful."""


def across(attacker: AttackInput) -> Floats:
    """Return 2 t (cos θ r + sin θ a), with the widest angle θ that is expected to be accepted.

    An accepted update is honest in the direction r that the committee measures, harmful at a right
    angle to it, and turns the travel slowly. `docs/reference/attacks.md` defines t, r, a
    and a member's part.
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
        distances = np.maximum(2 - 2 * cosines, 0.0)
        # A margin of two standard errors of a committee's score.
        margin = 2 * float(distances.std()) / sqrt(parameters.members)
        if float(distances.mean()) + margin <= RIGHT_ANGLE:
            chosen = np.cos(angle) * best_along + np.sin(angle) * best_aside
            return np.asarray(length * (_unit(chosen, table) @ basis))
    return np.asarray(length * (best_along @ basis))


def _fan(units: Floats, references: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Return r, the mean of references, and a, the aim at a right angle to it, as coefficients."""
    along = _unit(references.mean(axis=0), table)
    aim = -_unit(units.mean(axis=0), table)
    aim[-1] += 1.0
    return along, _unit(aim - (aim @ table @ along) * along, table)


def _basis(attacker: AttackInput) -> tuple[Floats, float]:
    """Return unit vectors of colluders, travel and fixed direction, and twice the median length."""
    updates = attacker.colluders.astype(np.float64)
    lengths = np.sqrt((updates * updates).sum(axis=1))
    dimension = updates.shape[1]
    travel = np.zeros(dimension) if attacker.travel is None else attacker.travel.astype(np.float64)
    drift = named_stream(b"", "adaptive", dimension).standard_normal(dimension)
    basis = np.stack([*updates, travel, drift])
    norms = np.sqrt((basis * basis).sum(axis=1, keepdims=True))
    divided = np.divide(basis, norms, out=np.zeros_like(basis), where=norms > 0)
    return divided, LENGTH * float(np.median(lengths))


def _unit(vector: Floats, table: Floats) -> Floats:
    """Return the coefficients of a unit vector; zeros if only rounding error remains."""
    norm = sqrt(max(float(vector @ table @ vector), 0.0))
    return vector / norm if norm > 1e-7 else np.zeros_like(vector)


def adaptive(attacker: AttackInput) -> Update:
    """Return the most harmful update that the colluders expect to be accepted.

    Under a distance between updates that is `against`, under one between directions `across`; under
    strategy II −100 times the colluders' mean; without a committee Min-Max. A single attacker sends
    its own update.
    """
    if len(attacker.colluders) == 1:
        return np.array(attacker.colluders[0])
    if attacker.parameters is None:
        return min_max(attacker)
    if attacker.parameters.form is AcceptanceForm.LAST:
        forged = -FARTHEST * attacker.mean
    elif attacker.parameters.compares_directions:
        forged = across(attacker)
    else:
        forged = against(attacker)
    return forged.astype(np.float32)


ADAPTIVE = UpdateAttack(
    **described(adaptive),
    forge=adaptive,
    is_common=True,
    source="Adaptive: the largest deviation that the rule still accepts (ours)",
)
