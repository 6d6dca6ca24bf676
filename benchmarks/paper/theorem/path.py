"""The path of a run on the convex problem, and the bound of Theorem 1 with its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.paper.theorem.problem import Weights, vector_of_weights
from clients.attacks.worst import score_vectors
from clients.random_streams import named_stream
from ledger.protocol.encoding import sha256
from ledger.protocol.inputs import (
    drawn_committee,
    needs_displacement,
    sample_trainers,
    training_seed,
)
from ledger.protocol.judgement import rank_trainers
from ledger.protocol.parameters import Parameters
from ledger.protocol.ranking import elect
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import Layout, Travel, plain_distances
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from benchmarks.paper.theorem.problem import ConvexProblem
    from clients.models.model import ParameterVector


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of the bound.

    G², σ_k², κ², φ_min and φ_max are the extremes that one run has shown. The theorem means those
    of all that could have happened, so that the bound printed with these is a lower estimate.

    Attributes:
        smoothness: L of assumption 1.
        mu: of assumption 2.
        variance: Σ p_k σ_k², with σ_k² of assumption 3.
        gradient_squared: G² of assumption 4.
        kappa_squared: κ² of assumption 5.
        heterogeneity: Γ of definition 1.
        least_gap: φ_min of definition 2.
        largest_gap: φ_max of definition 2.
        start_squared: ‖w_1 − w*‖².
    """

    smoothness: float
    mu: float
    variance: float
    gradient_squared: float
    kappa_squared: float
    heterogeneity: float
    least_gap: float
    largest_gap: float
    start_squared: float
    local_steps: int

    @property
    def gamma(self) -> float:
        """γ = 4 L / mu."""
        return 4 * self.smoothness / self.mu


@dataclass(frozen=True, slots=True)
class Bound:
    """The five terms of the bound after some steps.

    Attributes:
        gradients: of G² and σ².
        lasting: 8 L Γ / (3 mu) · (φ_max / φ_min − 1), which stays however long one trains.
    """

    gradients: float
    kappa: float
    heterogeneity: float
    start: float
    lasting: float

    @property
    def total(self) -> float:
        """Upper bound of E[F(w^T)] − F*."""
        return self.gradients + self.kappa + self.heterogeneity + self.start + self.lasting


def bound_after(steps: int, constants: Constants) -> Bound | None:
    """Return the right side of Theorem 1.

    1 / (T + γ) [ (4 L (32 τ² G² + Σ p_k σ_k²) + 24 L² κ²) / (3 mu² φ_min) + 8 L² Γ / mu²
    + L γ ‖w_1 − w*‖² / 2 ] + 8 L Γ / (3 mu) · (φ_max / φ_min − 1)

    Args:
        steps: T, counted in steps of SGD and not in rounds: its proof has T = i τ.

    Returns:
        Its terms; None where φ_min is not above 0: the proof divides by it, and says nothing.
    """
    terms = constants
    if terms.least_gap <= 0:
        return None
    decay = 1 / (steps + terms.gamma)
    condition = terms.smoothness / terms.mu
    shared = decay * 4 / (3 * terms.mu**2 * terms.least_gap)
    return Bound(
        gradients=shared
        * terms.smoothness
        * (32 * terms.local_steps**2 * terms.gradient_squared + terms.variance),
        kappa=shared * 6 * terms.smoothness**2 * terms.kappa_squared,
        heterogeneity=decay * 8 * condition**2 * terms.heterogeneity,
        start=decay * terms.smoothness * terms.gamma * terms.start_squared / 2,
        lasting=8 * condition * terms.heterogeneity / 3 * (terms.largest_gap / terms.least_gap - 1),
    )


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


StepSize = Callable[[int], float]
"""η_t of step t, from 0, counted over all rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Training settings of all clients.

    Attributes:
        batch_size: samples of a step; a client that has fewer uses all it has.
        members: C, for S_c*.
        seed: of the run; who is drawn, and all batches, follow from it.
    """

    rounds: int
    local_steps: int
    batch_size: int
    step_size: StepSize
    members: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class PathRound:
    """One round.

    Attributes:
        accepted: S_a.
    """

    accepted: tuple[int, ...]
    weights: Weights
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPath:
    """A run: its rounds, and the constants of the bound, the largest or least that were seen.

    There are no constants where the model sat in the minimum of clients that are all alike, so that
    φ is never defined.
    """

    rounds: tuple[PathRound, ...]
    constants: Constants | None


def follow_path(
    problem: ConvexProblem, choosing: TheoremSelection, start: Weights, settings: PathSettings
) -> TrainingPath:
    """Return the path of a run.

    Args:
        start: w_1.
    """
    observed = _Observations(problem, settings.members)
    weights, rounds = start, []
    for number in range(1, settings.rounds + 1):
        seed = sha256(repr((settings.seed, "theorem", number)).encode())
        steps = range((number - 1) * settings.local_steps, number * settings.local_steps)
        updates = {}
        for client in choosing.active(seed):
            rng = named_stream(training_seed(seed, client), "batches")
            updates[client] = weights - _trained(client, weights, steps, settings, rng, observed)
        sent = {client: vector_of_weights(update) for client, update in updates.items()}
        accepted = choosing.accepted(vector_of_weights(weights), sent)
        observed.set_accepted(accepted, weights)
        weights = weights - sum(
            share * updates[client]
            for share, client in zip(problem.shares_among(accepted), accepted, strict=True)
        )
        error = problem.together.value(weights) - problem.optimum.value
        rounds.append(PathRound(tuple(map(int, accepted)), weights, error))
    return TrainingPath(tuple(rounds), observed.constants(start, settings.local_steps))


class _Observations:
    """The extremes that a run shows."""

    def __init__(self, problem: ConvexProblem, members: int) -> None:
        self.problem = problem
        self._committee = problem.best_committee(members)
        self._at_optimum = problem.values(problem.optimum.weights)
        self._variances = np.zeros(len(problem.clients))
        self._gradient = self._kappa = 0.0
        self._gaps: list[float] = []
        self._optimal_gaps: list[float] = []

    def gradients(self, client: int, second_moment: float, variance: float) -> None:
        self._gradient = max(self._gradient, second_moment)
        self._variances[client] = max(self._variances[client], variance)

    def set_accepted(self, accepted: Sequence[int], weights: Weights) -> None:
        """Take note of S_a, and of the model from which its round began."""
        problem, committee = self.problem, self._committee
        self._kappa = max(self._kappa, problem.committee_difference(accepted, committee))
        for gaps, values in (
            (self._gaps, problem.values(weights)),
            (self._optimal_gaps, self._at_optimum),
        ):
            gap = problem.committee_gap(accepted, values, committee)
            if gap is not None:
                gaps.append(gap)

    def constants(self, start: Weights, local_steps: int) -> Constants | None:
        """Return what the bound is made of, None where no gap is defined."""
        if not (self._gaps and self._optimal_gaps):
            return None
        away = start - self.problem.optimum.weights
        return Constants(
            smoothness=self.problem.smoothness,
            mu=self.problem.mu,
            variance=float(self.problem.shares @ self._variances),
            gradient_squared=self._gradient,
            kappa_squared=self._kappa,
            heterogeneity=self.problem.heterogeneity,
            least_gap=min(self._gaps),
            largest_gap=max(self._optimal_gaps),
            start_squared=float(np.sum(away * away)),
            local_steps=local_steps,
        )


def _trained(
    client: int,
    start: Weights,
    steps: range,
    settings: PathSettings,
    rng: np.random.Generator,
    seen: _Observations,
) -> Weights:
    """Return a client's local model after its steps of SGD."""
    objective = seen.problem.clients[client]
    size = min(settings.batch_size, objective.samples)
    weights = start
    for step in steps:
        residuals = objective.residuals(weights)
        seen.gradients(client, *objective.gradient_moments(weights, residuals, size))
        rows = rng.choice(objective.samples, size, replace=False)
        gradient = objective.mean_gradient(weights, residuals[rows], objective.inputs[rows])
        weights = weights - settings.step_size(step) * gradient
    return weights
