"""How far each candidate would move the model, estimated from inner products of updates alone.

A search has hundreds of candidates, and to play one by the rule's own code takes a millisecond. The
same decisions follow from inner products, up to rounding, in a seventh of that. What is sent rests
on no estimate: those that may be the best are played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.distances.composed_rules import direction, takes_all_pairs
from ledger.protocol.inputs import Participants, distance_context
from ledger.protocol.parameters import accepted_size
from ledger.protocol.rules.clipping import MEDIAN as MEDIAN_CLIP
from ledger.protocol.rules.clipping import NONE as NO_CLIP
from ledger.protocol.rules.clipping import QUANTILE as QUANTILE_CLIP
from ledger.protocol.rules.clipping import quantile_place
from ledger.protocol.rules.direction import DIRECTION
from ledger.protocol.rules.registry import SCORINGS, THRESHOLDS, scoring_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clients.attacks.updates.rule_aware.game import Game
    from clients.attacks.updates.update_attack import AttackInput
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.rules.distance import DistanceContext

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
    game: Game, sent: Sequence[NDArray[np.float64]], aim: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far what is sent would move the model along an aim.

    Args:
        game: of an attacker whose rule `can_estimate` admits.
        sent: by candidate, the coefficients of the colluders' updates, shape (colluders, k).
        aim: in the game's coordinates.

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
        if rule.context.server_direction is not None:
            travel = rule.context.server_direction.vector.astype(np.float64)
            last = np.broadcast_to(travel, (len(part), 1, len(travel)))
            rows = np.concatenate([rows, last], axis=1)
        effects += map(rule.effect, rows @ rows.transpose(0, 2, 1), along_aim)
    return np.array(effects)


@dataclass(frozen=True, slots=True, eq=False)
class _RoundRule:
    """A game's rule; its rows are the round's updates, ascending by client.

    Attributes:
        parameters: of the run.
        members: rows of the committee.
        trainers: the other rows.
        asked: rows whose updates weigh the travel.
        context: of the distances.
    """

    parameters: Parameters
    members: NDArray[np.int64]
    trainers: NDArray[np.int64]
    asked: NDArray[np.int64]
    context: DistanceContext

    @classmethod
    def of(cls, game: Game) -> _RoundRule | None:
        """Return the rule of a game; None for the mean of all updates."""
        parameters = game.attacker.parameters
        if parameters is None:
            return None
        clients = sorted(game.clients)
        trainers = tuple(client for client in clients if client not in set(game.members))
        seats = Participants(game.members, trainers, frozenset())
        number = 1 if game.travel is None else 2
        context = distance_context(parameters, game.attacker.layout, number, seats, game.travel)
        asked = () if context.server_direction is None else context.server_direction.members
        members, others, weighing = (
            np.searchsorted(clients, each) for each in (game.members, trainers, asked)
        )
        return cls(parameters, members, others, weighing, context)

    def effect(
        self,
        products: NDArray[np.float64],
        along_aim: NDArray[np.float64],
    ) -> float:
        """Return the part of the aggregate along the aim.

        Args:
            products: inner products of the updates and, last, the travel if there is one.
            along_aim: those of the n updates with the aim, shape (n,).
        """
        norms = np.sqrt(np.diagonal(products))[: len(along_aim)]
        if not np.isfinite(norms).all() or not norms.all():
            return np.inf
        scores = self._scores(products, len(norms))
        accepted = scores <= self._threshold()
        if not accepted.any():
            size = accepted_size(self.parameters.aggregation_ppm, len(scores))
            accepted[np.argsort(scores, kind="stable")[:size]] = True
        chosen = self.trainers[accepted]
        parts = along_aim[chosen]
        if self.parameters.clip == MEDIAN_CLIP.name:
            parts = parts * np.minimum(1.0, _median(norms[chosen]) / norms[chosen])
        elif self.parameters.clip == QUANTILE_CLIP.name:
            length = np.sort(norms)[quantile_place(len(norms))]
            parts = parts * np.minimum(1.0, length / norms[chosen])
        return self.parameters.server_rate * float(parts.mean())

    def _threshold(self) -> float:
        """Return the largest accepted score, which rests on no distance."""
        find = THRESHOLDS[self.parameters.threshold].find
        assert find is not None, "strategy III has a threshold"
        return find((), scoring_named(self.parameters.scoring))

    def _scores(self, products: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return the trainers' scores."""
        seats = self.members.tolist()
        taken = range(count) if takes_all_pairs(self.context) else seats
        among = _ProductSquares(products, [*taken, *range(count, len(products))])
        distances = direction(among, self.context, seats, self.asked.tolist())
        return scoring_named(self.parameters.scoring).combine(distances[:, self.trainers])


@dataclass(slots=True, eq=False)
class _ProductSquares:
    """Squared distances of all updates to the members', from inner products of whole updates."""

    products: NDArray[np.float64]
    members: Sequence[int]
    dimension: int = 1

    def squares(
        self,
        start: int,  # noqa: ARG002 - there is one range
        stop: int,  # noqa: ARG002
        norms: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Return ‖Δ_k / norm_k − Δ_c / norm_c‖², shape (members, clients)."""
        scaled = self.products if norms is None else self.products / (norms[:, None] * norms)
        lengths, rows = np.diagonal(scaled), list(self.members)
        return np.maximum(0.0, lengths[rows][:, None] + lengths - 2 * scaled[rows])

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update."""
        return np.sqrt(np.diagonal(self.products))


def _as_sent(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows as they are published, in float32."""
    return rows.astype(np.float32).astype(np.float64)
