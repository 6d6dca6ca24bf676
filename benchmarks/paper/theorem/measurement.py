"""Theorem 1 for one configuration: the error of a run, and the bound that the paper prints for it.

The run is softmax regression with an L2 term on the configuration's own division of its data, in
float64 and without a ledger; once with the theorem's own step sizes, η_t = 1 / (mu (t + γ)), and
once with the configuration's learning rate, for which the theorem says nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Annotated, Any

from pydantic import Field

from benchmarks.paper.theorem.path import (
    AveragingSelection,
    CommitteeSelection,
    Constants,
    PathSettings,
    StepSize,
    TheoremSelection,
    TrainingPath,
    bound_after,
    follow_path,
)
from benchmarks.paper.theorem.problem import (
    ConvexProblem,
    Objective,
    objective_of,
    problem_of,
    weights_of,
)
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import SettingsTable, parse_settings
from clients.datasets.registry import load_dataset
from clients.experiments.baselines import MethodRound
from clients.experiments.definition import Method
from clients.experiments.kinds import MethodRun, MethodTask
from clients.models.registry import model_named
from clients.random_streams import named_stream
from clients.runs.metrics import Quality
from clients.training.workload import majority_rate
from ledger.protocol.errors import ConfigurationError

MODEL = "softmax"
"""The one built-in model whose objective is strongly convex once there is an L2 term."""


class TheoremOptions(SettingsTable):
    """Options of a method of kind `theorem`.

    Attributes:
        mu: weight of the L2 term. Below 1e-6 F* would not be known to the decimals of a row (see
            `benchmarks.paper.theorem.problem.GRADIENT_NORM`), above 1e6 nothing but the term is
            left.
        averaging: FedAvg over n clients instead of a committee.
    """

    mu: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 0.01
    averaging: bool = False


def theorem_row(configuration: Configuration, method: Method, seed: int) -> dict[str, Any]:
    """Return Theorem 1's terms for a method, under the names of an experiment's row.

    Args:
        configuration: of the run: data, sizes, rules, rounds, tau, batch size and learning rate.

    Returns:
        `accuracy`, `loss` and `training_loss` after each round with the learning rate, the losses
        without the L2 term; `floor`, `times_aggregated`, `samples`; and `extra.theorem`: the
        constants of the data (`mu`, `smoothness` L, `gamma`, `optimal_value` F*, `heterogeneity`
        Gamma, `best_committee` S_c*, `optimal_accuracy` of w*), and under `step_sizes` for each of
        `theorem` and `rate` the `constants` seen on the path, `error` F(w) - F* after each round,
        the `bound` after each round from the constants of the whole path, and the `terms` of the
        last one. Bound and terms are None where phi_min is not above 0. The largest and least of
        one path replace those over all possible paths: the bound is a lower estimate.
    """
    options = parse_settings(TheoremOptions, method.options, "options")
    configuration = configuration.model_copy(update={"seed": seed})
    require_theorem(configuration, options.mu)
    clients = configuration.protocol.clients
    data = load_dataset(configuration.data.choice(), clients, named_stream(seed, "data"))
    model = model_named(MODEL, data.form, configuration.model.options)
    parameters = configuration.parameters(model.dimension)
    problem = problem_of(data, options.mu)
    start = weights_of(model.initial(named_stream(seed, "model")), data.form.classes)
    training = configuration.training

    def path(step_size: StepSize) -> TrainingPath:
        choosing: TheoremSelection = (
            AveragingSelection(clients, parameters.trainers)
            if options.averaging
            else CommitteeSelection(parameters, model.layout)
        )
        settings = PathSettings(
            rounds=parameters.rounds,
            local_steps=training.local_steps or 0,
            batch_size=training.batch_size,
            step_size=step_size,
            members=parameters.members,
            seed=seed,
        )
        return follow_path(problem, choosing, start, settings)

    paths = {
        "theorem": path(lambda step: 1 / (problem.mu * (step + problem.gamma))),
        "rate": path(lambda _: training.learning_rate),
    }
    test = objective_of(data.test, data.collate, data.form.classes, mu=0.0)
    return _measured(problem, test, paths["rate"]) | {
        "floor": majority_rate(data.test.y),
        "extra": {
            "theorem": {
                "mu": problem.mu,
                "smoothness": problem.smoothness,
                "gamma": problem.gamma,
                "optimal_value": problem.optimum.value,
                "optimal_accuracy": test.accuracy(problem.optimum.weights),
                "heterogeneity": problem.heterogeneity,
                "best_committee": list(problem.best_committee(parameters.members)),
                "local_steps": training.local_steps,
                "step_sizes": {
                    name: _told(of_rule, training.local_steps or 0)
                    for name, of_rule in paths.items()
                },
            }
        },
    }


def require_theorem(configuration: Configuration, mu: float) -> None:
    """Refuse what the theorem is not about.

    Args:
        mu: weight of the L2 term.
    """
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


def _measured(problem: ConvexProblem, test: Objective, path: TrainingPath) -> dict[str, Any]:
    """Return the usual lists of a row."""
    together, mu = problem.together, problem.mu
    aggregated = [0] * len(problem.clients)
    for round_ in path.rounds:
        for client in round_.accepted:
            aggregated[client] += 1
    return {
        "accuracy": [test.accuracy(round_.weights) for round_ in path.rounds],
        "loss": [test.value(round_.weights) for round_ in path.rounds],
        "training_loss": [
            together.value(round_.weights) - mu / 2 * float((round_.weights**2).sum())
            for round_ in path.rounds
        ],
        "times_aggregated": aggregated,
        "samples": problem.samples.tolist(),
    }


def _told(path: TrainingPath, local_steps: int) -> dict[str, Any]:
    steps = range(local_steps, local_steps * len(path.rounds) + 1, local_steps)
    bounds = [_bound(number, path.constants) for number in steps]
    return {
        "constants": None if path.constants is None else asdict(path.constants),
        "error": [entry.error for entry in path.rounds],
        "bound": [None if entry is None else entry["total"] for entry in bounds],
        "terms": bounds[-1],
    }


def _bound(steps: int, constants: Constants | None) -> dict[str, float] | None:
    """Return the bound and its terms; None where there is none that is finite."""
    bound = None if constants is None else bound_after(steps, constants)
    if bound is None or not isfinite(bound.total):
        return None
    return asdict(bound) | {"total": bound.total}


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what the theorem is not about."""
    require_theorem(configuration, parse_settings(TheoremOptions, method.options, "options").mu)


def play(task: MethodTask) -> MethodRun:
    """Follow the paths of a run; a round counts as played when all of them are."""
    measurement = theorem_row(task.configuration, task.method, task.configuration.seed)
    qualities = zip(
        measurement["accuracy"], measurement["loss"], measurement["training_loss"], strict=True
    )
    for _ in measurement["accuracy"]:
        task.on_round()
    return MethodRun(
        rounds=tuple(
            MethodRound(
                quality=Quality(accuracy, loss, training_loss),
                trained=(),
                served=None,
                aggregated=(),
            )
            for accuracy, loss, training_loss in qualities
        ),
        floor=measurement["floor"],
        samples=tuple(measurement["samples"]),
        times_aggregated=tuple(measurement["times_aggregated"]),
        extra=measurement["extra"],
    )
