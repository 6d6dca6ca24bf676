"""One run: a rule, an attack, a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.crowding.attacks import ATTACKS, View
from benchmarks.crowding.federation import CLASSES, CLIENTS, PIXELS, Federation, flipped_model
from benchmarks.crowding.rule import MEMBERS, TRAINERS, Array, clipped, decide, unit

WINDOW, LAST = 20, 5


@dataclass(frozen=True, slots=True)
class Regime:
    """Rounds of a run, share of attackers among all clients, whether updates are clipped."""

    rounds: int = 40
    share: float = 0.3
    is_clipped: bool = False


def play(rule: str, attack: str, seed: int, regime: Regime) -> float:
    """Return the mean accuracy of a run's last five rounds."""
    rngs = [np.random.default_rng([seed, purpose]) for purpose in range(4)]
    drawing, sampling, batches, attacking = rngs
    federation = Federation.draw(drawing)
    is_malicious = np.zeros(CLIENTS, dtype=bool)
    forge = ATTACKS[attack]
    if forge:
        is_malicious[drawing.permutation(CLIENTS)[: round(regime.share * CLIENTS)]] = True
    bad = flipped_model(federation, is_malicious) if is_malicious.any() else np.zeros(0)
    models = [drawing.normal(scale=0.01, size=PIXELS * CLASSES)]
    committee = sampling.permutation(CLIENTS)[: 0 if rule == "fedavg" else MEMBERS]
    published: list[Array] = []
    drift = np.zeros(PIXELS * CLASSES)
    for at in range(regime.rounds):
        w = models[-1]
        others = np.setdiff1d(np.arange(CLIENTS), committee)
        active = np.append(committee, np.sort(sampling.permutation(others)[:TRAINERS]))
        updates = federation.updates(w, active, batches)
        travel = models[max(0, at - WINDOW)] - w if at else None
        evil, seats = is_malicious[active], np.arange(len(active)) < len(committee)
        honest = updates[~evil]
        if forge and evil.any():
            own, pull = updates[evil], unit(w - bad)
            past = np.vstack(published[-2:] or [own])
            updates[evil] = forge(
                View(
                    rule,
                    regime.is_clipped,
                    own,
                    seats[evil],
                    past,
                    drift if at else own.mean(axis=0),
                    travel,
                    pull,
                    attacking,
                )
            )
        published.append(honest)
        drift = 0.85 * drift + unit(honest.mean(axis=0))
        rows = np.arange(len(active))
        accepted, elected = decide(rule, updates, rows[seats], rows[~seats], travel)
        weights = federation.sizes[active[accepted]]
        moving = clipped(updates) if regime.is_clipped else updates
        models.append(w - weights @ moving[accepted] / weights.sum())
        committee = active[elected]
    return float(np.mean([federation.accuracy(model) for model in models[-LAST:]]))
