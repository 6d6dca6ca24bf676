"""How far each candidate would move the model, estimated from inner products of updates alone.

A search has hundreds of candidates, and to play one by the rule's own code takes a millisecond. The
same decisions follow from inner products, up to rounding, in a seventh of that. What is sent rests
on no estimate: those that may be the best are played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.update_attack import AttackInput
from ledger.protocol.parameters import Parameters, accepted_size
from ledger.protocol.rules.clipping import quantile_place
from ledger.protocol.rules.direction import RIGHT_ANGLE, compared

if TYPE_CHECKING:
    from clients.attacks.updates.rule_aware.game import Game

_TOGETHER = 64
"""Candidates whose inner products are in memory at a time."""


def can_estimate(attacker: AttackInput) -> bool:
    """Return whether its run's rule is a mean, or strategy 3."""
    parameters = attacker.parameters
    if parameters is None:
        return attacker.server is not None and attacker.server.is_mean
    return parameters.compares_directions


def estimated_effects(
    game: Game, sent: Sequence[NDArray[np.float64]], aim: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far what is sent would move the model along an aim.

    Args:
        game: of an attacker whose rule `can_estimate` admits.
        sent: by candidate, the coefficients of the colluders' updates, shape (colluders, k).

    Returns:
        Shape (candidates,); infinite where an update has no direction, and nothing is estimated.
    """
    rule = _RoundRule.of(game)
    order = np.argsort(game.clients)
    honest = _as_sent(game.honest @ game.coordinates)
    effects: list[float] = []
    for start in range(0, len(sent), _TOGETHER):
        part = sent[start : start + _TOGETHER]
        theirs = _as_sent(np.stack(part) @ game.coordinates)
        rows = np.concatenate([np.broadcast_to(honest, (len(part), *honest.shape)), theirs], axis=1)
        if rule is None:
            effects += (rows @ aim).mean(axis=1).tolist()
            continue
        rows = rows[:, order]
        along_aim = rows @ aim
        if game.travel is not None:
            travel = game.travel.astype(np.float64)
            last = np.broadcast_to(travel, (len(part), 1, len(travel)))
            rows = np.concatenate([rows, last], axis=1)
        effects += map(rule.effect, rows @ rows.transpose(0, 2, 1), along_aim)
    return np.array(effects)


@dataclass(frozen=True, slots=True, eq=False)
class _RoundRule:
    """Strategy 3 in a game; its rows are the round's updates, ascending by client."""

    parameters: Parameters
    trainers: NDArray[np.int64]

    @classmethod
    def of(cls, game: Game) -> _RoundRule | None:
        """Return the rule of a game; None for the mean of all updates."""
        parameters = game.attacker.parameters
        if parameters is None:
            return None
        clients, members = sorted(game.clients), set(game.members)
        rows = [row for row, client in enumerate(clients) if client not in members]
        return cls(parameters, np.array(rows))

    def effect(
        self,
        products: NDArray[np.float64],
        along_aim: NDArray[np.float64],
    ) -> float:
        """Return the part of the aggregate along the aim.

        Args:
            along_aim: those of the n updates with the aim, shape (n,).
        """
        norms = np.sqrt(np.diagonal(products))[: len(along_aim)]
        if not np.isfinite(norms).all() or not norms.all():
            return np.inf
        scores = self._scores(products, norms)
        accepted = scores < RIGHT_ANGLE
        if not accepted.any():
            size = accepted_size(self.parameters.aggregation_ppm, len(scores))
            accepted[np.argsort(scores, kind="stable")[:size]] = True
        chosen = self.trainers[accepted]
        length = np.sort(norms)[quantile_place(len(norms))]
        parts = along_aim[chosen] * np.minimum(1.0, length / norms[chosen])
        return self.parameters.server_rate * float(parts.mean())

    def _scores(
        self, products: NDArray[np.float64], norms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the trainers' scores, which are the same for every member."""
        lengths = np.sqrt(np.diagonal(products))
        squares = np.maximum(0.0, 2 - 2 * products / (lengths[:, None] * lengths))
        count = len(norms)
        from_travel = squares[-1, :-1] if len(products) > count else None
        return compared(norms, squares[:count, :count], from_travel).distances[self.trainers]


def _as_sent(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows as they are published, in float32."""
    return rows.astype(np.float32).astype(np.float64)
