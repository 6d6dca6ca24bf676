"""Attacks by colluders who know the rule, the models and what earlier rounds published."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.crowding.rule import MEMBERS, TRAINERS, Array, clipped, decide, scores, unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class View:
    """What colluders know: their own, the models, what earlier rounds published. All by row."""

    rule: str
    is_clipped: bool
    own: Array  # their honest updates of this round
    is_member: Array
    past: Array  # honest updates of the two rounds before
    drift: Array  # running mean of what honest clients published in all rounds
    travel: Array | None
    pull: Array  # p = unit(w_t - w_bad)
    rng: np.random.Generator

    @property
    def length(self) -> float:
        """Median length of their updates, t."""
        return float(np.median(np.linalg.norm(self.own, axis=1)))

    @property
    def along(self) -> Array:
        """Direction of the travel, or zeros."""
        return np.zeros_like(self.pull) if self.travel is None else unit(self.travel)

    def effect(self, sent: Array) -> Array:
        """Return the aggregate if the honest sent what honest clients sent a round before."""
        count = (MEMBERS if self.rule != "fedavg" else 0) + TRAINERS
        honest = np.resize(np.arange(len(self.past)), count - len(sent))
        updates = np.vstack([sent, self.past[honest]])
        vacant = count - TRAINERS - int(np.count_nonzero(self.is_member))
        is_member = np.append(self.is_member, np.arange(len(honest)) < vacant)
        seats = np.flatnonzero(is_member), np.flatnonzero(~is_member)
        accepted, _ = decide(self.rule, updates, *seats, self.travel)
        moving = clipped(updates) if self.is_clipped else updates
        return np.asarray(moving[accepted].mean(axis=0))


def reversed_mean(view: View) -> Array:
    """Send -5 times the mean (`ipm`, factor 5)."""
    return np.tile(-5 * view.own.mean(axis=0), (len(view.own), 1))


def min_max(view: View) -> Array:
    """Send (1 - γ) times the mean, no farther from anyone than two of them are."""
    own, mean = view.own, view.own.mean(axis=0)
    widest = max((np.linalg.norm(own - update, axis=1).max() for update in own), default=0)
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        is_near = np.linalg.norm(own - (1 - middle) * mean, axis=1).max() <= widest
        low, high = (middle, high) if is_near else (low, middle)
    return np.tile((1 - low) * mean, (len(own), 1))


def adaptive(view: View) -> Array:
    """Turn from the references as far as one's own committee would accept, at length 2 t."""
    own, mean = unit(view.own), np.asarray(unit(view.own).mean(axis=0))
    members = np.arange(len(own))
    b = 0.0 if view.rule == "fedavg" else scores(view.rule, own, members, view.travel).b
    reference = unit(mean + b * view.along)
    against = unit(np.dot(mean, reference) * reference - mean)
    chosen = reference
    for angle in np.deg2rad(np.arange(85, 0, -5)):
        chosen = np.cos(angle) * reference + np.sin(angle) * against
        if view.rule == "fedavg":
            break
        seen = scores(view.rule, np.vstack([own, chosen]), members, view.travel)
        if np.median(seen.distances[:, -1]) < 2:
            break
    as_member = -unit(mean)
    return 2 * view.length * np.where(view.is_member[:, None], as_member, chosen)


def noise(view: View) -> Array:
    """Hide the pull, at 30 degrees, in Gaussian noise of each attacker's own."""
    own = unit(_gaussian(view))
    angle = np.deg2rad(30)
    return 2 * view.length * (unit(_turned(own, view.pull, angle)) + 0.3 * view.along)


def target(view: View) -> Array:
    """Search among forgeries that pull to the flipped model (`target`, searched)."""
    mean = np.broadcast_to(unit(np.mean(unit(view.own), axis=0)), view.own.shape)
    along = np.broadcast_to(view.along, view.own.shape)
    menu = product((unit(view.own), mean, along), (0.0,), ("honest", "same", "reversed"))
    return _search(view, view.pull, menu)


def back(view: View) -> Array:
    """Search among forgeries against the honest mean of two rounds, in several guises (W-back)."""
    return _backwards(view, -unit(np.mean(view.past, axis=0)))


def drift(view: View) -> Array:
    """Do the same against the honest mean of all rounds: the worst attack that was found."""
    return _backwards(view, -unit(view.drift))


def _backwards(view: View, aim: Array) -> Array:
    """Search among forgeries that show an own update, noise or another's residual, and h."""
    stolen = unit(view.past[view.rng.integers(len(view.past), size=len(view.own))])
    stolen = stolen - np.outer(stolen @ view.along, view.along)
    guises = unit(view.own), unit(_gaussian(view)), unit(stolen)
    return _search(view, aim, product(guises, (0.0, 0.5, 1.0), ("honest", "same")))


ATTACKS: dict[str, Callable[[View], Array] | None] = {
    "none": None,
    "ipm-5": reversed_mean,
    "min-max": min_max,
    "adaptive": adaptive,
    "target": target,
    "noise-30": noise,
    "w-back": back,
    "w-drift": drift,
}


def _gaussian(view: View) -> Array:
    return np.asarray(view.rng.standard_normal(view.own.shape))


def _turned(from_: Array, to: Array, angle: float) -> Array:
    return np.asarray(np.cos(angle) * from_ + np.sin(angle) * to)


def _search(view: View, aim: Array, menu: Iterator[tuple[Array, float, str]]) -> Array:
    """Return the forgery that moves the stand-ins' aggregate most along an aim.

    Args:
        view: what the colluders know.
        aim: a unit vector; the model moves against it.
        menu: what attackers show beside the aim, how much of the travel it has, what members do.
    """
    best, sent_by_best = -np.inf, view.own
    act = np.arange(len(view.own)) % 2 == 0
    for guise, part, members in menu:
        shown = unit(guise + part * view.along)
        for degrees, is_half in product((15, 30, 45, 60, 75, 90, 120), (False, True)):
            forged = 2 * view.length * unit(_turned(shown, aim, np.deg2rad(degrees)))
            as_member = {"honest": view.own, "same": forged, "reversed": -forged}[members]
            sent = np.where(view.is_member[:, None], as_member, forged)
            if is_half:
                sent = np.where((act | view.is_member)[:, None], sent, view.own)
            effect = float(view.effect(sent) @ aim)
            if effect > best:
                best, sent_by_best = effect, sent
    return sent_by_best
