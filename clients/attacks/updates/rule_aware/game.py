"""A round played by the run's own rule, with stand-ins for the honest clients.

Stand-ins are what honest clients published in one of the two rounds before and, where these are too
few, in the other, then the colluders' own honest updates: nobody can see this round's before all
have committed. The rule is the ledger's or the server's own code. Where it depends on lengths and
angles alone, it plays with short vectors that have the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.rule_aware.frame import Frame
from clients.attacks.updates.update_attack import AttackInput, Update
from ledger.distances.fast import fast_distances
from ledger.protocol.documents.vector import ScoreVector
from ledger.protocol.inputs import Inputs, Participants, RoundClosing
from ledger.protocol.judgement import next_model, rank_trainers
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Domain, RegisteredClient

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

        Args:
            first: which of the published rounds the stand-ins are taken from before all others.
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
        """Return how the model would move, as an update points, in coordinates.

        Args:
            sent: coefficients of the colluders' updates, shape (colluders, k).
        """
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
