"""BrainTorrent, with as many participants as CMFL activates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.baselines.decentralised.brain_torrent import BrainTorrentSettings, brain_torrent
from clients.experiments.kinds.baseline import measured, sizes
from clients.experiments.kinds.decentralised import played, require_options

if TYPE_CHECKING:
    from clients.configuration import Configuration
    from clients.experiments.definition import Method
    from clients.experiments.kinds.played import Played, Task


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what could not be played.

    Args:
        configuration: of the run.
        method: its options, of which there are none.

    Raises:
        ConfigurationError: names the value and the rule.
    """
    require_options(method, frozenset())
    parameters = sizes(configuration)
    BrainTorrentSettings(parameters.rounds, parameters.active).require(parameters.clients)


def play(task: Task) -> Played:
    """Play a run of BrainTorrent.

    Args:
        task: what is to be played.

    Raises:
        CmflError: it cannot be carried out.
    """
    parameters = sizes(task.configuration)
    with measured(task, parameters.active) as (population, measure):
        settings = BrainTorrentSettings(parameters.rounds, parameters.active, population.attackers)
        rows = brain_torrent(
            population.data,
            measure.gauge,
            population.initial,
            settings,
            task.configuration.seed,
            lambda _: task.on_round(),
        )
    return played(task, population, measure, rows)
