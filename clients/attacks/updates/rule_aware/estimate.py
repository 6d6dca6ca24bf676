"""How far each candidate would move the model, estimated from inner products of updates alone.

A search has hundreds of candidates, and to play one by the rule's own code takes a millisecond. The
same decisions follow from inner products, up to rounding, in a seventh of that. What is sent rests
on no estimate: those that may be the best are played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.parameters import accepted_size
from ledger.protocol.rules.clipping import MEDIAN as MEDIAN_CLIP
from ledger.protocol.rules.clipping import NONE as NO_CLIP
from ledger.protocol.rules.clipping import QUANTILE as QUANTILE_CLIP
from ledger.protocol.rules.crowding import crowding_of
from ledger.protocol.rules.direction import DIRECTION, median_from_others
from ledger.protocol.rules.reference import LengthPenalty
from ledger.protocol.rules.registry import SCORINGS, THRESHOLDS, scoring_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clients.attacks.updates.rule_aware.game import Game
    from clients.attacks.updates.update_attack import AttackInput
    from ledger.protocol.parameters import Parameters

_median = SCORINGS["median"].combine

_TOGETHER = 64
"""Candidates whose inner products are in memory at a time."""


def can_estimate(attacker: AttackInput) -> bool:
    """Return whether its run's rule is a mean, or one of directions up to a right angle."""
    parameters = attacker.parameters
    if parameters is None:
        return attacker.server is not None and attacker.server.is_mean
    return (
        parameters.distance == DIRECTION.name
        and THRESHOLDS[parameters.threshold].distance == DIRECTION.name
        and parameters.clip in {NO_CLIP.name, MEDIAN_CLIP.name, QUANTILE_CLIP.name}
    )


def estimated_effects(
    game: Game, sent: Sequence[NDArray[np.float64]], direction: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far what is sent would move the model along a direction.

    Args:
        game: of an attacker whose rule `can_estimate` admits.
        sent: by candidate, the coefficients of the colluders' updates, shape (colluders, k).
        direction: in the game's coordinates.

    Returns:
        Shape (candidates,); infinite where an update has no direction, and nothing is estimated.
    """
    rule = _RoundRule.of(game)
    order = np.argsort(game.clients)
    honest = _as_sent(game.honest @ game.coordinates)
    travel = _travel(game)
    effects: list[float] = []
    for start in range(0, len(sent), _TOGETHER):
        part = sent[start : start + _TOGETHER]
        theirs = _as_sent(np.stack(part) @ game.coordinates)
        rows = np.concatenate([np.broadcast_to(honest, (len(part), *honest.shape)), theirs], axis=1)
        if rule is None:
            effects += (rows @ direction).mean(axis=1).tolist()
            continue
        rows = rows[:, order]
        products = rows @ rows.transpose(0, 2, 1)
        effects += map(rule.effect, products, rows @ travel, rows @ direction)
    return np.array(effects)


@dataclass(frozen=True, slots=True, eq=False)
class _RoundRule:
    """A game's rule; its rows are the round's updates, ascending by client.

    Attributes:
        parameters: of the run.
        members: rows of the committee.
        trainers: the other rows.
        has_travel: whether there is a direction of travel that the rule looks at.
    """

    parameters: Parameters
    members: NDArray[np.int64]
    trainers: NDArray[np.int64]
    has_travel: bool

    @classmethod
    def of(cls, game: Game) -> _RoundRule | None:
        """Return the rule of a game; None for the mean of all updates."""
        parameters = game.attacker.parameters
        if parameters is None:
            return None
        is_member = np.isin(np.sort(game.clients), game.members)
        has_travel = game.travel is not None and parameters.direction_weight is not None
        members, trainers = np.flatnonzero(is_member), np.flatnonzero(~is_member)
        return cls(parameters, members, trainers, has_travel)

    def effect(
        self,
        products: NDArray[np.float64],
        along_travel: NDArray[np.float64],
        along_aim: NDArray[np.float64],
    ) -> float:
        """Return the part of the aggregate along the aim.

        Args:
            products: inner products of the updates, shape (n, n).
            along_travel: those with the unit vector of the travel, shape (n,).
            along_aim: those with the aim, shape (n,).
        """
        norms = np.sqrt(np.diagonal(products))
        if not np.isfinite(norms).all() or not norms.all():
            return np.inf
        scores = self._scores(products / (norms[:, None] * norms), along_travel / norms, norms)
        accepted = scores <= self._threshold()
        if not accepted.any():
            size = accepted_size(self.parameters.aggregation_ppm, len(scores))
            accepted[np.argsort(scores, kind="stable")[:size]] = True
        chosen = self.trainers[accepted]
        parts = along_aim[chosen]
        if self.parameters.clip == MEDIAN_CLIP.name:
            parts = parts * np.minimum(1.0, _median(norms[chosen]) / norms[chosen])
        elif self.parameters.clip == QUANTILE_CLIP.name:
            length = np.sort(norms)[2 * (len(norms) - 1) // 5]
            parts = parts * np.minimum(1.0, length / norms[chosen])
        return self.parameters.server_rate * float(parts.mean())

    def _threshold(self) -> float:
        """Return the largest accepted score, which rests on no distance."""
        find = THRESHOLDS[self.parameters.threshold].find
        assert find is not None, "strategy III has a threshold"
        return find((), scoring_named(self.parameters.scoring))

    def _scores(
        self, cosines: NDArray[np.float64], along: NDArray[np.float64], norms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the trainers' scores."""
        rule, trainers = self.parameters.reference_rule, self.trainers
        squares = np.maximum(0.0, 2 - 2 * cosines)
        if rule.compares_all:
            distances = median_from_others(squares)[None, trainers]
        else:
            distances = squares[np.ix_(self.members, trainers)]
        if self.has_travel and rule.direction_weight is not None:
            asked = along if rule.asks_all else along[self.members]
            b = rule.direction_weight.multiple(asked.tolist())
            distances = (distances + b * (2 - 2 * along[trainers])) / (1 + b)
        factors = np.maximum(1.0, norms / (2 * _median(norms)))[trainers] ** 2
        if rule.penalty is LengthPenalty.FACTOR:
            distances = distances * factors
        elif rule.penalty is LengthPenalty.SUMMAND:
            distances = distances + (factors - 1)
        else:
            crowding = crowding_of(cosines, along).factors[trainers]
            distances = distances + (factors * crowding - 1)
        return scoring_named(self.parameters.scoring).combine(distances)


def _as_sent(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows as they are published, in float32."""
    return rows.astype(np.float32).astype(np.float64)


def _travel(game: Game) -> NDArray[np.float64]:
    """Return the unit vector of the travel; zeros where there is none."""
    if game.travel is None:
        return np.zeros(game.coordinates.shape[1])
    travel = game.travel.astype(np.float64)
    return np.asarray(travel / np.linalg.norm(travel))
