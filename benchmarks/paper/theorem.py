"""Theorem 1 for one configuration: the error of a run, and the bound that the paper prints for it.

The run is softmax regression with an L2 term on the configuration's own division of its data, in
float64 and without a ledger. It has the theorem's own step sizes, η_t = 1 / (mu (t + γ)), and then
the configuration's learning rate, which the theorem does not cover. With the L2 term every F_k is
mu-strongly convex (assumption 2) and has a minimum. Paper: section "Convergence Analysis".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import minimize

from clients.attacks.worst import score_vectors
from clients.configuration.schema import Configuration
from clients.datasets import federated_data
from clients.datasets.federated_data import FederatedData, named_stream, parse_settings
from clients.datasets.registry import load_dataset
from clients.experiments.baselines import MethodRound
from clients.experiments.definition import Method
from clients.experiments.kinds import MethodRun, MethodTask
from clients.experiments.rows import StepSizes
from clients.models.registry import model_named
from clients.runs.metrics import Quality
from clients.training.jobs import majority_rate
from ledger.protocol import inputs
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.judgement import rank_trainers
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.rules.selection import elect
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

MODEL = "softmax"
"""The one built-in model whose objective is strongly convex once there is an L2 term."""
GRADIENT_NORM = 1e-6
"""‖∇F‖ below which a point counts as the minimum: F is then within 1e-12 / (2 mu) of F*."""
Weights: TypeAlias = NDArray[np.float64]
"""W, one row per class; the last column are the biases. Shape (classes, inputs + 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """F(W) = 1/n Σ_i −log softmax(W x_i)[y_i] + mu/2 ‖W‖².

    `inputs` has x_i and a one for the bias, shape (n, inputs + 1); `labels` has y_i, shape (n,).
    """

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    mu: float

    @property
    def samples(self) -> int:
        return len(self.labels)

    @property
    def smoothness(self) -> float:
        """L of assumption 1: λ_max(XᵀX / n) / 2 + mu."""
        # The Hessian of a sample is (diag p − p pᵀ) ⊗ x xᵀ; the first factor's eigenvalues are at
        # most 1/2. XᵀX and XXᵀ have the same eigenvalues except zeros: take the smaller matrix.
        x = self.inputs if self.inputs.shape[1] < self.samples else self.inputs.T
        return float(np.linalg.eigvalsh(x.T @ x)[-1]) / self.samples / 2 + self.mu

    def value(self, weights: Weights) -> float:
        scores = self.inputs @ weights.T
        top = scores.max(axis=1)
        sums = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
        losses = sums - scores[np.arange(self.samples), self.labels]
        return float(losses.mean() + self.mu / 2 * np.sum(weights * weights))

    def accuracy(self, weights: Weights) -> float:
        predicted = (self.inputs @ weights.T).argmax(axis=1)
        return float(np.mean(predicted == self.labels))

    def residuals(self, weights: Weights) -> NDArray[np.float64]:
        """Return softmax(W x_i) less one at y_i, of each sample, shape (n, classes)."""
        scores = self.inputs @ weights.T
        shares: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(self.samples), self.labels] -= 1
        return shares

    def gradient(
        self,
        weights: Weights,
        residuals: NDArray[np.float64] | None = None,
        rows: NDArray[np.int64] | slice = slice(None),
    ) -> Weights:
        """Return ∇F(W) over some of the samples, of the shape of W."""
        residuals = self.residuals(weights) if residuals is None else residuals
        inputs = self.inputs[rows]
        gradient: Weights = residuals[rows].T @ inputs / len(inputs) + self.mu * weights
        return gradient

    def gradient_moments(
        self, weights: Weights, residuals: NDArray[np.float64], batch_size: int
    ) -> tuple[float, float]:
        """Return E‖g‖² and E‖g − ∇F‖² over all batches, which assumptions 4 and 3 bound."""
        # For b of n samples without repetition E‖g − ∇F‖² = S (n − b) / (b (n − 1)), where
        # S = 1/n Σ_i ‖g_i‖² − ‖1/n Σ_i g_i‖².
        mean = residuals.T @ self.inputs / self.samples
        # A sample's gradient is an outer product (and mu W, which moves all of them alike).
        squares = np.sum(residuals**2, axis=1) * np.sum(self.inputs**2, axis=1)
        spread = max(0.0, float(squares.mean() - np.sum(mean * mean)))
        left = self.samples - batch_size
        variance = spread * left / (batch_size * (self.samples - 1)) if left else 0.0
        whole = mean + self.mu * weights
        return float(np.sum(whole * whole)) + variance, variance


def objective_of(
    samples: federated_data.Samples, collate: federated_data.Collate, classes: int, mu: float
) -> Objective:
    """Return the objective of a client, or of a test set."""
    rows = np.asarray(collate(samples.x), dtype=np.float64).reshape(len(samples.y), -1)
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    return Objective(inputs, np.asarray(samples.y), classes, mu)


def weights_of(vector: ParameterVector, classes: int) -> Weights:
    """Return W for the parameters of the model `softmax`: its weights, then its biases."""
    rows = np.asarray(vector, dtype=np.float64)
    return np.concatenate([rows[:-classes].reshape(classes, -1), rows[-classes:, None]], axis=1)


def vector_of_weights(weights: Weights) -> ParameterVector:
    """Return W as the parameters of the model `softmax`, rounded to float32 as they are sent."""
    return np.concatenate([weights[:, :-1].ravel(), weights[:, -1]]).astype(np.float32)


def minimum(objective: Objective, most_steps: int = 10_000) -> tuple[Weights, float]:
    """Return w* and F* of an objective; refuse a mu that is too small to find them."""
    shape = objective.classes, objective.inputs.shape[1]
    found = minimize(
        lambda flat: objective.value(flat.reshape(shape)),
        np.zeros(shape).ravel(),
        jac=lambda flat: objective.gradient(flat.reshape(shape)).ravel(),
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "maxiter": most_steps,
            "maxfun": 4 * most_steps,
            "ftol": 0.0,
            # The largest element; the norm of all of them is compared below.
            "gtol": GRADIENT_NORM / np.sqrt(shape[0] * shape[1]),
        },
    )
    weights: Weights = found.x.reshape(shape)
    norm = float(np.linalg.norm(objective.gradient(weights)))
    if not norm < GRADIENT_NORM:
        raise ConfigurationError(
            f"mu = {objective.mu}: the gradient is {norm:.3g} where it should be below "
            f"{GRADIENT_NORM:g}; a larger mu makes the minimum easier to find"
        )
    return weights, float(found.fun)


class ConvexProblem:
    """The objectives F_k of all clients of divided data, and their minima F_k*, by client k."""

    def __init__(self, data: FederatedData, mu: float) -> None:
        classes = data.form.classes
        self.mu = mu
        self.clients = [objective_of(client, data.collate, classes, mu) for client in data.train]
        # F = Σ p_k F_k with p_k = n_k / Σ n_k is the objective of all samples together.
        self.together = Objective(
            np.concatenate([client.inputs for client in self.clients]),
            np.concatenate([client.labels for client in self.clients]),
            classes,
            mu,
        )
        self.optimum, self.optimal_value = minimum(self.together)
        self.minima = np.array([minimum(client)[1] for client in self.clients])
        self.samples = np.array([client.samples for client in self.clients], dtype=np.int64)
        self.shares: NDArray[np.float64] = self.samples / self.samples.sum()
        # L of assumption 1, γ, and Γ of definition 1.
        self.smoothness = max(client.smoothness for client in self.clients)
        self.gamma = 4 * self.smoothness / mu
        self.heterogeneity = self.optimal_value - float(self.shares @ self.minima)

    def values(self, weights: Weights) -> NDArray[np.float64]:
        return np.array([client.value(weights) for client in self.clients])

    def shares_among(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        """Return p_{k,S} = n_k / Σ_S n_k of each client of a set, in its order."""
        chosen_samples = self.samples[list(chosen)]
        shares: NDArray[np.float64] = chosen_samples / chosen_samples.sum()
        return shares

    def mean_over(self, chosen: Sequence[int], values: NDArray[np.float64]) -> float:
        return float(self.shares_among(chosen) @ values[list(chosen)])

    def best_committee(self, members: int) -> tuple[int, ...]:
        """Return S_c*: the clients with the smallest F_k*, ties by their number."""
        order = np.argsort(self.minima, kind="stable")
        return tuple(sorted(order[:members].tolist()))

    def committee_gap(
        self, accepted: Sequence[int], values: NDArray[np.float64], committee: Sequence[int]
    ) -> float | None:
        """Return φ(S_a, w), definition 2 for one set and F_k(w) = `values`; None for 0 / 0."""
        below = float(self.shares @ values) - float(self.shares @ self.minima)
        if below <= 0:
            return None
        above = self.mean_over(accepted, values) - self.mean_over(committee, self.minima)
        return above / below

    def committee_difference(self, accepted: Sequence[int], committee: Sequence[int]) -> float:
        """Return what assumption 5 bounds by κ²: |Σ_{S_a} p F_k* − Σ_{S_c*} p F_k*|."""
        return abs(self.mean_over(accepted, self.minima) - self.mean_over(committee, self.minima))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """L, mu, Σ p_k σ_k², G², κ², Γ, φ_min, φ_max, ‖w_1 − w*‖² and τ of the bound, in this order.

    G², σ_k², κ², φ_min and φ_max are the extremes of one run. The theorem means those of all
    possible runs, so the bound with these is a lower estimate.
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


def bound_after(steps: int, constants: Constants) -> dict[str, float] | None:
    """Return the right side of Theorem 1 by its terms, and their `total`.

    1 / (T + γ) [ (4 L (32 τ² G² + Σ p_k σ_k²) + 24 L² κ²) / (3 mu² φ_min) + 8 L² Γ / mu²
    + L γ ‖w_1 − w*‖² / 2 ] + 8 L Γ / (3 mu) · (φ_max / φ_min − 1)

    The last term, `lasting`, does not shrink with T. T counts steps of SGD and not rounds: the
    proof has T = i τ. None where φ_min is not above 0: the proof divides by it.
    """
    of = constants
    if of.least_gap <= 0:
        return None
    condition = of.smoothness / of.mu
    gamma = 4 * of.smoothness / of.mu
    decay = 1 / (steps + gamma)
    shared = decay * 4 / (3 * of.mu**2 * of.least_gap)
    spread = 32 * of.local_steps**2 * of.gradient_squared + of.variance
    terms = {
        "gradients": shared * of.smoothness * spread,
        "kappa": shared * 6 * of.smoothness**2 * of.kappa_squared,
        "heterogeneity": decay * 8 * condition**2 * of.heterogeneity,
        "start": decay * of.smoothness * gamma * of.start_squared / 2,
        "lasting": 8 * condition * of.heterogeneity / 3 * (of.largest_gap / of.least_gap - 1),
    }
    return terms | {"total": sum(terms.values())}


class AveragingSelection(NamedTuple):
    """FedAvg: n clients train, and all of them are averaged."""

    clients: int
    trainers: int

    def active(self, seed: Digest) -> tuple[ClientId, ...]:
        return inputs.sample_trainers(seed, self.clients, (), self.trainers)

    def accepted(
        self,
        model: ParameterVector,  # noqa: ARG002 - a committee needs it
        updates: Mapping[ClientId, ParameterVector],
    ) -> tuple[ClientId, ...]:
        return tuple(sorted(updates))


class CommitteeSelection:
    """CMFL: C members rank the n trainers, and their strategy accepts some of these."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._candidates: tuple[ClientId, ...] = ()
        self._members: tuple[ClientId, ...] = ()
        self._trainers: tuple[ClientId, ...] = ()
        self._models: list[ParameterVector] = []

    def active(self, seed: Digest) -> tuple[ClientId, ...]:
        """Return committee and trainers; the first committee is drawn, later ones are elected."""
        rules = self.parameters
        if self._candidates:
            self._members = elect(self._candidates, rules.members, seed)
        else:
            self._members = inputs.drawn_committee(seed, rules.clients, rules.members, ())
        self._trainers = inputs.sample_trainers(seed, rules.clients, self._members, rules.trainers)
        return tuple(sorted(self._members + self._trainers))

    def accepted(
        self, model: ParameterVector, updates: Mapping[ClientId, ParameterVector]
    ) -> tuple[ClientId, ...]:
        """Return S_a in ranking order, and keep the candidates for the next committee."""
        self._models.append(model)
        number, members = len(self._models), tuple(sorted(self._members))
        travel = None
        if inputs.needs_displacement(self.parameters, number):
            travel = displacement(self._models[window_start(number) - 1], model)
        table = plain_distances(self.parameters.distance_rule, travel, updates, members)
        vectors = score_vectors(number, table, sorted(updates), self._trainers, members)
        ranking = rank_trainers(self.parameters, vectors)
        self._candidates = ranking.candidates
        return ranking.accepted


class PathSettings(NamedTuple):
    """Training settings of all clients; all draws follow from the seed.

    A client with fewer than `batch_size` samples uses all of them. `step_size` returns η_t of step
    t, from 0, counted over all rounds. `members` is C, for S_c*.
    """

    rounds: int
    local_steps: int
    batch_size: int
    step_size: Callable[[int], float]
    members: int
    seed: int


class PathRound(NamedTuple):
    """A round: S_a, w after it, and F(w) − F*."""

    accepted: tuple[int, ...]
    weights: Weights
    error: float


class TrainingPath:
    """A run from w_1, and the extremes of the bound's constants that it shows."""

    def __init__(
        self,
        problem: ConvexProblem,
        choosing: AveragingSelection | CommitteeSelection,
        start: Weights,
        settings: PathSettings,
    ) -> None:
        self.problem, self.settings = problem, settings
        self.rounds: list[PathRound] = []
        self._start = start
        self._variances = np.zeros(len(problem.clients))
        self._gradient = self._kappa = 0.0
        self._gaps: list[float] = []
        self._optimal_gaps: list[float] = []
        committee = problem.best_committee(settings.members)
        at_optimum = problem.values(problem.optimum)
        weights = start
        for number in range(1, settings.rounds + 1):
            seed = sha256(repr((settings.seed, "theorem", number)).encode())
            updates = {
                client: weights - self._trained(client, weights, number, seed)
                for client in choosing.active(seed)
            }
            sent = {client: vector_of_weights(update) for client, update in updates.items()}
            accepted = choosing.accepted(vector_of_weights(weights), sent)
            self._kappa = max(self._kappa, problem.committee_difference(accepted, committee))
            at_start = problem.values(weights)
            for gaps, values in ((self._gaps, at_start), (self._optimal_gaps, at_optimum)):
                gap = problem.committee_gap(accepted, values, committee)
                if gap is not None:
                    gaps.append(gap)
            shares = problem.shares_among(accepted)
            weights = weights - sum(
                share * updates[client] for share, client in zip(shares, accepted, strict=True)
            )
            error = problem.together.value(weights) - problem.optimal_value
            self.rounds.append(PathRound(tuple(map(int, accepted)), weights, error))

    def _trained(self, client: ClientId, weights: Weights, number: int, seed: Digest) -> Weights:
        """Return a client's local model after its steps of SGD in a round."""
        objective, settings = self.problem.clients[client], self.settings
        rng = named_stream(inputs.training_seed(seed, client), "batches")
        size = min(settings.batch_size, objective.samples)
        for step in range((number - 1) * settings.local_steps, number * settings.local_steps):
            residuals = objective.residuals(weights)
            moment, variance = objective.gradient_moments(weights, residuals, size)
            self._gradient = max(self._gradient, moment)
            self._variances[client] = max(self._variances[client], variance)
            rows = rng.choice(objective.samples, size, replace=False)
            gradient = objective.gradient(weights, residuals, rows)
            weights = weights - settings.step_size(step) * gradient
        return weights

    @property
    def constants(self) -> Constants | None:
        """The bound's constants; None where all clients are alike, so that φ is undefined."""
        if not (self._gaps and self._optimal_gaps):
            return None
        return Constants(
            smoothness=self.problem.smoothness,
            mu=self.problem.mu,
            variance=float(self.problem.shares @ self._variances),
            gradient_squared=self._gradient,
            kappa_squared=self._kappa,
            heterogeneity=self.problem.heterogeneity,
            least_gap=min(self._gaps),
            largest_gap=max(self._optimal_gaps),
            start_squared=float(np.sum((self._start - self.problem.optimum) ** 2)),
            local_steps=self.settings.local_steps,
        )

    def as_row(self) -> StepSizes:
        """Return the constants, errors and bounds of the path for the run's row."""
        constants, bounds = self.constants, []
        for number in range(1, len(self.rounds) + 1):
            steps = number * self.settings.local_steps
            bound = None if constants is None else bound_after(steps, constants)
            bounds.append(bound if bound is not None and isfinite(bound["total"]) else None)
        return {
            "constants": None if constants is None else asdict(constants),
            "error": [entry.error for entry in self.rounds],
            "bound": [None if bound is None else bound["total"] for bound in bounds],
            "terms": bounds[-1],
        }


class TheoremOptions(federated_data.SettingsTable):
    """The weight of the L2 term, and whether to average n clients without a committee."""

    mu: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 0.01
    averaging: bool = False


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what the theorem is not about."""
    mu = parse_settings(TheoremOptions, method.options, "options").mu
    training, malice = configuration.training, configuration.malice
    rate, server_rate = training.learning_rate, configuration.protocol.server_rate
    plain = "Theorem 1 is about plain SGD"
    refusals = {
        f"model.name = {configuration.model.name}: Theorem 1 needs a strongly convex objective, "
        f"and so model.name = {MODEL}": configuration.model.name != MODEL,
        f"training.local_epochs = {training.local_epochs}: Theorem 1 is about tau steps, the same "
        "for all clients: training.local_steps": training.local_steps is None,
        f"training.proximal = {training.proximal}: {plain}": training.proximal is not None,
        f"training.calibrated = true: {plain}": training.calibrated,
        "malice is set: Theorem 1 is about honest clients": bool(
            malice.malicious_rate or malice.members or malice.trainers
        ),
        f"protocol.server_rate = {server_rate}: Theorem 1 is about 1": server_rate != 1,
        f"training.learning_rate = {rate}: must be below 2 / mu = {2 / mu:g}": rate * mu >= 2,
    }
    for sentence, is_refused in refusals.items():
        if is_refused:
            raise ConfigurationError(sentence)


def play(task: MethodTask) -> MethodRun:
    """Follow the paths of a run; the row's qualities are those with the learning rate.

    Losses are without the L2 term. `extra.theorem` has the constants of the data and, for each of
    the two `step_sizes`, the `constants` of the path, `error` F(w) − F* and `bound` after each
    round, and the `terms` of the last bound. Bounds are None where φ_min is not above 0.
    """
    configuration = task.configuration
    options = parse_settings(TheoremOptions, task.method.options, "options")
    require(configuration, task.method)
    seed, clients = configuration.seed, configuration.protocol.clients
    data = load_dataset(configuration.data.choice(), clients, named_stream(seed, "data"))
    model = model_named(MODEL, data.form, configuration.model.options)
    parameters = configuration.parameters(model.dimension)
    problem = ConvexProblem(data, options.mu)
    start = weights_of(model.initial(named_stream(seed, "model")), data.form.classes)
    training = configuration.training
    local_steps = training.local_steps or 0

    def followed(step_size: Callable[[int], float]) -> TrainingPath:
        choosing = (
            AveragingSelection(clients, parameters.trainers)
            if options.averaging
            else CommitteeSelection(parameters)
        )
        sizes = (parameters.rounds, local_steps, training.batch_size)
        settings = PathSettings(*sizes, step_size, parameters.members, seed)
        return TrainingPath(problem, choosing, start, settings)

    paths = {
        "theorem": followed(lambda step: 1 / (problem.mu * (step + problem.gamma))),
        "rate": followed(lambda _: training.learning_rate),
    }
    test = objective_of(data.test, data.collate, data.form.classes, mu=0.0)
    rounds: list[MethodRound] = []
    accepted: list[int] = []
    for of in paths["rate"].rounds:
        penalty = problem.mu / 2 * float((of.weights**2).sum())
        training_loss = problem.together.value(of.weights) - penalty
        quality = Quality(test.accuracy(of.weights), test.value(of.weights), training_loss)
        rounds.append(MethodRound(quality, trained=(), aggregated=()))
        accepted += of.accepted
        task.on_round()
    return MethodRun(
        rounds=tuple(rounds),
        floor=majority_rate(data.test.y),
        samples=tuple(problem.samples.tolist()),
        times_aggregated=tuple(np.bincount(accepted, minlength=clients).tolist()),
        extra={
            "theorem": {
                "mu": problem.mu,
                "smoothness": problem.smoothness,
                "gamma": problem.gamma,
                "optimal_value": problem.optimal_value,
                "optimal_accuracy": test.accuracy(problem.optimum),
                "heterogeneity": problem.heterogeneity,
                "best_committee": list(problem.best_committee(parameters.members)),
                "local_steps": local_steps,
                "step_sizes": {name: path.as_row() for name, path in paths.items()},
            }
        },
    )
