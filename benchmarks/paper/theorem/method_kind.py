"""Kind of method for Theorem 1: the error of a run, and the paper's bound."""

from __future__ import annotations

from benchmarks.paper.theorem.measurement import TheoremOptions, require_theorem, theorem_row
from clients.configuration.schema import Configuration
from clients.datasets.settings_table import parse_settings
from clients.experiments.baselines import MethodRound
from clients.experiments.definition import Method
from clients.experiments.kinds import MethodRun, MethodTask
from clients.runs.metrics import Quality


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
