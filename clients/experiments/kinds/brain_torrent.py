"""BrainTorrent, with as many participants as CMFL activates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.baselines.brain_torrent import (
    BrainTorrentSettings,
    run_brain_torrent,
)
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


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what could not be played."""
    require_options(method, frozenset())
    parameters = cmfl_parameters(configuration)
    BrainTorrentSettings(parameters.rounds, parameters.active).require(parameters.clients)


def play(task: MethodTask) -> MethodRun:
    """Play a run of BrainTorrent."""
    parameters = cmfl_parameters(task.configuration)
    with open_population(task, parameters.active) as (population, measure):
        settings = BrainTorrentSettings(parameters.rounds, parameters.active, population.attackers)
        rows = run_brain_torrent(
            population.data,
            measure.gauge,
            population.initial,
            settings,
            task.configuration.seed,
            lambda _: task.on_round(),
        )
    return play_decentralised(task, population, measure, rows)
