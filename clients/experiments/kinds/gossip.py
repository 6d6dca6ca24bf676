"""Segmented gossip (GossipFL), with as many participants as CMFL activates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.adversaries.attackers import Attackers
from clients.experiments.baselines.gossip import GossipSettings, run_gossip
from clients.experiments.kinds.baseline import (
    cmfl_parameters,
    open_population,
    play_decentralised,
    require_options,
)

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.experiments.definition import Method
    from clients.experiments.kinds.method_kind import MethodRun, MethodTask

OPTIONS = frozenset({"segments", "replicas"})
"""S and R."""


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what could not be played; whether a model has S numbers, its own model will say."""
    require_options(method, OPTIONS)
    settings = _settings(configuration, method, Attackers())
    settings.require(configuration.protocol.clients, max(1, settings.segments))


def play(task: MethodTask) -> MethodRun:
    """Play a run of segmented gossip."""
    with open_population(task, cmfl_parameters(task.configuration).active) as (population, measure):
        settings = _settings(task.configuration, task.method, population.attackers)
        rows = run_gossip(
            population.data,
            measure.gauge,
            population.initial,
            settings,
            task.configuration.seed,
            lambda _: task.on_round(),
        )
    return play_decentralised(task, population, measure, rows)


def _settings(configuration: Configuration, method: Method, attackers: Attackers) -> GossipSettings:
    parameters = cmfl_parameters(configuration)
    return GossipSettings(
        parameters.rounds, parameters.active, **method.options, attackers=attackers
    )
