"""What all methods without a committee share: the population, an engine, and what measures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from clients.runs.population import populate
from clients.runs.preparing import measuring, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients.configuration import Configuration
    from clients.experiments.kinds.played import Task
    from clients.runs.metrics import Measure
    from clients.runs.population import Population
    from ledger.protocol.parameters import Parameters


@contextmanager
def measured(task: Task, participants: int) -> Iterator[tuple[Population, Measure]]:
    """Open what a run without a ledger needs.

    Args:
        task: what is to be played.
        participants: how many train at once.

    Yields:
        The clients of the run, and what measures its models.
    """
    population = populate(task.configuration)
    configuration = settled(task.configuration, population)
    with measuring(configuration, population, participants, task.stopwatch.watched) as measure:
        yield population, measure


def sizes(configuration: Configuration) -> Parameters:
    """Return the sizes of a round of CMFL, from which those of the others follow."""
    return configuration.parameters(dimension=1)
