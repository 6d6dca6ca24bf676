"""The common part of all kinds without a committee."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clients.experiments.baselines.traffic import recorded_traffic
from clients.experiments.kinds.method_kind import MethodRound, MethodRun
from clients.experiments.rows import round_values
from clients.runs.population import populate, with_training_path
from clients.runs.preparation import open_measure
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload_forms import FLOAT32

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from clients.configuration.schema import Configuration
    from clients.experiments.baselines.round import BaselineRound, DecentralisedRound
    from clients.experiments.baselines.traffic import RoundTraffic
    from clients.experiments.definition import Method
    from clients.experiments.kinds.method_kind import MethodTask
    from clients.runs.metrics import Measure
    from clients.runs.population import Population
    from ledger.protocol.parameters import Parameters


@contextmanager
def open_population(task: MethodTask, participants: int) -> Iterator[tuple[Population, Measure]]:
    """Open what a run without a ledger needs; its clients send float32, whatever CMFL's do."""
    population = populate(task.configuration)
    protocol = task.configuration.protocol.model_copy(update={"payload": FLOAT32.name})
    configuration = task.configuration.model_copy(update={"protocol": protocol})
    configuration = with_training_path(configuration, population)
    with open_measure(configuration, population, participants, task.stopwatch.watched) as measure:
        yield population, measure


def cmfl_parameters(configuration: Configuration) -> Parameters:
    """Return the sizes of a round of CMFL, from which those of the others follow."""
    return configuration.parameters(dimension=1)


def without_ledger(
    task: MethodTask,
    population: Population,
    measure: Measure,
    rows: Sequence[BaselineRound],
    traffic: Sequence[RoundTraffic],
    extra: dict[str, Any],
) -> MethodRun:
    """Return the result of a run without a ledger; extra is what only its kind has."""
    rounds = tuple(
        MethodRound(quality=row.quality, trained=row.participants, served=None, aggregated=row.used)
        for row in rows
    )
    dimension = population.model.dimension
    return MethodRun(
        rounds=rounds,
        floor=measure.floor,
        samples=tuple(population.data.sample_counts),
        malicious=population.malicious,
        bytes=recorded_traffic(traffic, dimension) if task.counts_bytes else {},
        extra=extra,
    )


def require_options(method: Method, known: Collection[str]) -> None:
    """Refuse an option that a method does not know, or that is no whole number."""
    for name, value in method.options.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"options.{name}: {method.kind} knows {listed}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"options.{name} = {value!s:.80}: must be a whole number")


def play_decentralised(
    task: MethodTask, population: Population, measure: Measure, rows: Sequence[DecentralisedRound]
) -> MethodRun:
    """Return the result of a run, the second quality in its `extra`."""
    extra = {
        "beside_accuracy": list(round_values(row.beside.accuracy for row in rows)),
        "beside_loss": list(round_values(row.beside.loss for row in rows)),
    }
    traffic = [row.traffic for row in rows]
    return without_ledger(task, population, measure, rows, traffic, extra)
