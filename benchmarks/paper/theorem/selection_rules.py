"""Whose updates enter the model: those of all who train, or those that a committee accepts.

The committee is that of the protocol, played without a ledger: the same draws, the same rules, the
same election. Its rules see updates as they would be sent, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.attacks.updates.rule_aware.game import score_vectors
from ledger.protocol.inputs import needs_displacement
from ledger.protocol.judgement import rank_trainers
from ledger.protocol.parameters import Parameters
from ledger.protocol.ranking import elect
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import Layout, Travel, plain_distances
from ledger.protocol.sampling import drawn_committee, sample_trainers
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from clients.models.model import ParameterVector


@dataclass(frozen=True, slots=True)
class AveragingSelection:
    """FedAvg: n clients train, and all of them are averaged."""

    clients: int
    trainers: int

    def active(self, seed: Digest) -> tuple[ClientId, ...]:
        """Return the n clients that the round's seed draws."""
        return sample_trainers(seed, self.clients, (), self.trainers)

    def accepted(
        self,
        model: ParameterVector,  # noqa: ARG002 - a committee needs it
        updates: Mapping[ClientId, ParameterVector],
    ) -> tuple[ClientId, ...]:
        return tuple(sorted(updates))


@dataclass(slots=True)
class CommitteeSelection:
    """CMFL: C members rank the n trainers, and their strategy accepts some of these."""

    parameters: Parameters
    layout: Layout
    _candidates: tuple[ClientId, ...] = field(default=(), init=False)
    _members: tuple[ClientId, ...] = field(default=(), init=False)
    _trainers: tuple[ClientId, ...] = field(default=(), init=False)
    _models: list[ParameterVector] = field(default_factory=list, init=False)

    def active(self, seed: Digest) -> tuple[ClientId, ...]:
        """Return committee and trainers; the first committee is drawn, later ones are elected."""
        rules = self.parameters
        if self._candidates:
            self._members = elect(self._candidates, rules.members, seed)
        else:
            self._members = drawn_committee(seed, rules.clients, rules.members, ())
        self._trainers = sample_trainers(seed, rules.clients, self._members, rules.trainers)
        return tuple(sorted(self._members + self._trainers))

    def accepted(
        self, model: ParameterVector, updates: Mapping[ClientId, ParameterVector]
    ) -> tuple[ClientId, ...]:
        """Return S_a in ranking order, and keep the candidates for the next committee."""
        self._models.append(model)
        members = tuple(sorted(self._members))
        table = plain_distances(self.parameters.distance_rule, self._travel(), updates, members)
        number, clients = len(self._models), sorted(updates)
        vectors = score_vectors(number, table, clients, self._trainers, members)
        ranking = rank_trainers(self.parameters, vectors)
        self._candidates = ranking.candidates
        return ranking.accepted

    def _travel(self) -> Travel:
        number = len(self._models)
        if not needs_displacement(self.parameters, number):
            return None
        return displacement(self._models[window_start(number) - 1], self._models[-1])


TheoremSelection = AveragingSelection | CommitteeSelection
"""Chooses S_a in each round, rounds in their order."""
