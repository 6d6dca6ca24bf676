"""One run on the regularised objectives, and the extremes that it shows of what the bound is made.

Line for line a round of Algorithm 3, in float64: who is active takes tau steps of SGD from the
global model, and Σ p_{k,S_a} Δ_k of the accepted is taken off it. Batches are drawn as assumption 3
has it, each by itself and uniformly without repetition, and not in the turns of an epoch as in a
run over the ledger; the step size may fall from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.paper.theorem.bound import Constants
from benchmarks.paper.theorem.objective import Weights, vector_of_weights
from benchmarks.paper.theorem.selection_rules import TheoremSelection
from clients.random_streams import named_stream
from ledger.protocol.encoding import sha256
from ledger.protocol.sampling import training_seed

if TYPE_CHECKING:
    from benchmarks.paper.theorem.problem import ConvexProblem

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
