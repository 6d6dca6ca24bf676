"""A round as the colluders know it, played by the run's own rule with stand-ins for honest clients.

All that is sent or played lies in the span of the vectors that an attacker knows, so that lengths
and angles follow from one table of inner products. Stand-ins are what honest clients published in
one of the two rounds before, then the colluders' own honest updates. A search has hundreds of
candidates: effects are estimated from inner products, and those that may be the best are played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates import AttackInput, Update
from ledger.distances.fast import fast_distances
from ledger.protocol.documents.vector import ScoreVector
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import Inputs, Participants, RoundClosing
from ledger.protocol.judgement import next_model, rank_trainers
from ledger.protocol.parameters import Parameters, accepted_size
from ledger.protocol.rules.clipping import quantile_place
from ledger.protocol.rules.direction import RIGHT_ANGLE, compared
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Domain, RegisteredClient

LENGTH = 2.0
"""s: multiple of the median length, beyond which distances of directions grow."""

_NOTHING = 1e-12
"""Square of a length below which a combination of unit vectors is rounding error."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Unit vectors known in a round; a zero vector stays zero.

    Attributes:
        vectors: shape (k, d): the colluders' updates, the updates published in the two rounds
            before, noise of each colluder, p, h, e, and the server's last aggregate.
        norms: lengths of the vectors before they were divided by them, shape (k,).
        published: rows of the honest clients' updates of each of the two rounds before, the later
            round first.
        goal: row of p, the direction of w_t − w_bad.
        drift: row of e, the direction that honest clients took in the rounds before; before
            anything is published it is that of the colluders' own mean.
    """

    vectors: NDArray[np.float64]
    norms: NDArray[np.float64]
    own: NDArray[np.int64]
    published: tuple[NDArray[np.int64], ...]
    noise: NDArray[np.int64]
    goal: int
    travel: int
    drift: int
    last: int

    @classmethod
    def of(cls, attacker: AttackInput) -> Frame:
        """Return the frame of a round, whose colluders' updates are finite."""
        if attacker.model is None or attacker.bad_model is None:
            raise ConfigurationError(
                "this attack needs one model for all clients, and one that the attackers have "
                "trained on false labels: it attacks a committee or a server"
            )
        own, dimension = attacker.colluders, attacker.colluders.shape[1]
        noise = attacker.rng.standard_normal(own.shape)
        goal = attacker.model.astype(np.float64) - attacker.bad_model
        travel = np.zeros(dimension) if attacker.travel is None else attacker.travel
        drift = attacker.mean if attacker.drift is None else attacker.drift
        last = np.zeros(dimension) if attacker.server is None else attacker.server.last
        special = goal, travel, drift, last
        known = [update for updates in attacker.published for update in updates]
        raw = np.stack([*own, *known, *noise, *special], dtype=np.float64)
        norms = np.sqrt((raw * raw).sum(axis=1))
        vectors = np.divide(raw, norms[:, None], out=np.zeros_like(raw), where=norms[:, None] > 0)
        count, end = len(own), 2 * len(own) + len(known)
        ends = np.cumsum([count, *map(len, attacker.published)]).tolist()
        return cls(
            vectors=vectors,
            norms=norms,
            own=np.arange(count),
            published=tuple(np.arange(*pair) for pair in pairwise(ends)),
            noise=np.arange(end - count, end),
            goal=end,
            travel=end + 1,
            drift=end + 2,
            last=end + 3,
        )

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Inner products of the vectors, shape (k, k)."""
        return np.asarray(self.vectors @ self.vectors.T)

    @cached_property
    def length(self) -> float:
        """t, the median length of the colluders' updates."""
        return float(np.median(self.norms[self.own]))

    @property
    def honest(self) -> NDArray[np.int64]:
        """Rows of all known honest updates of others, else of the colluders' own."""
        return np.concatenate(self.published or (self.own,))

    def row(self, rows: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return the coefficients of some vectors, one row for each."""
        return np.asarray(np.eye(len(self.vectors))[np.atleast_1d(rows)])

    def unit(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each combination divided by its length; zeros if only rounding error is left."""
        squares = np.einsum("ij,jk,ik->i", coefficients, self.table, coefficients)[:, None]
        lengths = np.sqrt(np.maximum(squares, 0.0))
        is_something = squares > _NOTHING
        return np.asarray(
            np.divide(coefficients, lengths, out=np.zeros_like(coefficients), where=is_something)
        )

    def mean(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the unit mean of some vectors, shape (1, k)."""
        return self.unit(self.row(rows).mean(axis=0, keepdims=True))

    def residual(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return unit combinations without their part along the travel, shape (rows, k)."""
        along = coefficients @ self.table[:, self.travel]
        return self.unit(coefficients - along[:, None] * self.row(self.travel))

    def coordinates(self) -> NDArray[np.float64]:
        """Return the vectors in as few dimensions as they span, with the same inner products."""
        if len(self.vectors) >= self.vectors.shape[1]:
            return self.vectors
        values, axes = np.linalg.eigh(self.table)
        return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


_DISTANCES = fast_distances()


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """A round with stand-ins for the honest clients.

    Attributes:
        coordinates: of the frame's vectors, shape (k, ·).
        travel: of the displacement, as an update; None where there is none.
        honest: coefficients of the stand-ins, shape (honest, k).
    """

    attacker: AttackInput
    coordinates: NDArray[np.float64]
    travel: Update | None
    last: NDArray[np.float64]
    honest: NDArray[np.float64]
    clients: tuple[ClientId, ...]
    members: tuple[ClientId, ...]

    @classmethod
    def of(cls, attacker: AttackInput, frame: Frame, first: int = 0) -> Game:
        """Return the game of a round; who stands in for whom is drawn.

        The stand-ins are taken from the `first` of the published rounds before all others.
        """
        honest_members = max(attacker.members - len(attacker.seats), 0)
        honest_trainers = max(attacker.trainers - attacker.attacking_trainers, 0)
        rounds = [*frame.published[first:], *frame.published[:first]]
        drawn = [attacker.rng.permutation(span) for span in rounds]
        known = np.concatenate([*drawn, frame.own])
        rows = np.resize(known, honest_members + honest_trainers)
        honest = frame.norms[rows][:, None] * frame.row(rows)
        # Ties are broken by index, which says nothing about who is honest.
        clients = attacker.rng.permutation(len(rows) + len(attacker.colluders)).tolist()
        members = [
            *clients[:honest_members],
            *(clients[len(rows) + seat] for seat in attacker.seats),
        ]
        coordinates = frame.vectors if not _is_of_angles(attacker) else frame.coordinates()
        travel = coordinates[frame.travel].astype(np.float32)
        return cls(
            attacker=attacker,
            coordinates=coordinates,
            travel=travel if travel.any() else None,
            last=frame.norms[frame.last] * coordinates[frame.last],
            honest=honest,
            clients=tuple(map(ClientId, clients)),
            members=tuple(map(ClientId, sorted(members))),
        )

    def step(self, sent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how the model would move, as an update points, in coordinates."""
        rows = (np.concatenate([self.honest, sent]) @ self.coordinates).astype(np.float32)
        updates = dict(sorted(zip(self.clients, rows, strict=True)))
        if self.attacker.parameters is not None:
            return self._committee_step(self.attacker.parameters, updates)
        if self.attacker.server is not None:
            rng = np.random.default_rng(0)
            step = self.attacker.server.aggregate(list(updates.values()), self.last, rng)
            return np.zeros(rows.shape[1]) if step is None else step
        return np.asarray(rows.mean(axis=0, dtype=np.float64))

    def _committee_step(
        self, parameters: Parameters, updates: Mapping[ClientId, Update]
    ) -> NDArray[np.float64]:
        inputs = self._inputs(parameters, updates)
        travel = self.travel if inputs.needs_displacement else None
        distances = _DISTANCES(parameters.distance_rule, travel, updates, self.members)
        vectors = score_vectors(
            inputs.round, distances, tuple(updates), inputs.participants.trainers, self.members
        )
        start = np.zeros(self.coordinates.shape[1], dtype=np.float32)
        accepted = rank_trainers(parameters, vectors).accepted
        return -next_model(inputs, start, accepted, updates).astype(np.float64)

    def _inputs(self, parameters: Parameters, updates: Mapping[ClientId, Update]) -> Inputs:
        members = set(self.members)
        trainers = tuple(client for client in updates if client not in members)
        return Inputs(
            parameters=parameters,
            layout=self.attacker.layout,
            domain=Domain(0, _NOBODY, NO_DIGEST),
            registry=(RegisteredClient(_NOBODY, 1),) * len(updates),
            round=1 if self.travel is None else 2,
            seed=NO_DIGEST,
            participants=Participants(self.members, trainers, frozenset()),
            closing=RoundClosing(0, NO_DIGEST, {}),
        )


def score_vectors(
    number: int,
    distances: NDArray[np.float64],
    clients: Sequence[ClientId],
    trainers: tuple[ClientId, ...],
    members: tuple[ClientId, ...],
) -> list[ScoreVector]:
    """Return the members' score vectors for a table of distances, shape (members, clients)."""
    columns = {client: column for column, client in enumerate(clients)}
    vectors = []
    for member, row in zip(members, distances, strict=True):
        others = tuple(other for other in members if other != member)
        measured, among = (row[[columns[client] for client in of]] for of in (trainers, others))
        vectors.append(ScoreVector(number, member, NO_DIGEST, trainers, measured, others, among))
    return vectors


def games(attacker: AttackInput, frame: Frame) -> tuple[Game, ...]:
    """Return a game with each of the published rounds first; one game before there are any."""
    return tuple(Game.of(attacker, frame, first) for first in range(len(frame.published) or 1))


_NOBODY = Address(bytes(20))


def _is_of_angles(attacker: AttackInput) -> bool:
    if attacker.parameters is not None:
        return attacker.parameters.distance == SQUARED.name  # also where directions are compared
    return attacker.server is None or attacker.server.is_of_angles


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
    """Return how far what is sent by each candidate would move the model along an aim.

    It is infinite where an update has no direction, and nothing is estimated.
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
        """Return the part of the aggregate along the aim."""
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
    return rows.astype(np.float32).astype(np.float64)
