"""One server and an aggregator: FedAvg and what withstands attacks on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clients.aggregators.aggregation import Aggregation
from clients.aggregators.pre_aggregators.registry import pre_aggregator_named
from clients.aggregators.registry import aggregator_named
from clients.experiments.baselines.federated import FederatedSettings, run_federated
from clients.experiments.baselines.traffic import federated_traffic
from clients.experiments.kinds.baseline import cmfl_parameters, open_population, without_ledger
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import parts_per_million, rounded_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.configuration.schema import Configuration
    from clients.experiments.definition import Method
    from clients.experiments.kinds.method_kind import MethodRun, MethodTask
    from ledger.protocol.parameters import Parameters

SHARE = "share"
"""An option `{share = x}` stands for so many of the participants."""

COUNTS = frozenset({"f", "m", "s"})
"""The options that count updates, of which there can be a share."""


def require(configuration: Configuration, method: Method) -> None:
    """Refuse an aggregation that the number of participants does not allow."""
    participants = participants_of(cmfl_parameters(configuration), method)
    _aggregation(method, participants).require(participants)


def play(task: MethodTask) -> MethodRun:
    """Play a run with one server."""
    parameters = cmfl_parameters(task.configuration)
    participants = participants_of(parameters, task.method)
    aggregation = _aggregation(task.method, participants)
    with open_population(task, participants) as (population, measure):
        settings = FederatedSettings(
            rounds=parameters.rounds,
            participants=participants,
            server_rate=parameters.server_rate,
            attackers=population.attackers,
            aggregator=aggregation.aggregator,
            pre_aggregators=aggregation.pre_aggregators,
            memory=population.attack_memory(task.configuration),
        )
        rows = run_federated(
            [client.samples for client in population.registry],
            measure.gauge,
            population.initial,
            settings,
            task.configuration.seed,
            lambda _: task.on_round(),
        )
    dimension = population.model.dimension
    traffic = [federated_traffic(row.participants, dimension) for row in rows]
    extra = {"participants": participants}
    return without_ledger(task, population, measure, rows, traffic, extra)


def participants_of(parameters: Parameters, method: Method) -> int:
    """Return how many clients train in a round."""
    return {
        "active": parameters.active,
        "trainers": parameters.trainers,
        "aggregated": parameters.accepted,
    }[method.participants]


def _aggregation(method: Method, participants: int) -> Aggregation:
    """Return what the server does."""
    pre = []
    for table in method.pre:
        options = {key: value for key, value in table.items() if key != "name"}
        if not isinstance(table.get("name"), str):
            raise ConfigurationError("pre: each of them needs a name")
        pre.append(pre_aggregator_named(table["name"], _counted(options, participants)))
    aggregator = aggregator_named(method.aggregator, _counted(method.options, participants))
    return Aggregation(aggregator, tuple(pre))


def _counted(options: Mapping[str, Any], participants: int) -> dict[str, Any]:
    """Return options with a number in place of each share."""
    numbers: dict[str, Any] = {}
    for key, value in options.items():
        numbers[key] = value
        if isinstance(value, dict):
            share = value.get(SHARE)
            if set(value) != {SHARE} or not isinstance(share, float):
                raise ConfigurationError(
                    f"{key} = {value!s:.80}: must be a number or {{share = x}}"
                )
            if key not in COUNTS:
                raise ConfigurationError(f"{key} = {value!s:.80}: does not count updates")
            numbers[key] = rounded_share(parts_per_million(f"{key}.{SHARE}", share), participants)
    return numbers
