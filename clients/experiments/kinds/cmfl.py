"""CMFL on the memory ledger: the rules and heads of a chain, without its cost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from clients.experiments.baselines.committee_traffic import CommitteeTraffic
from clients.experiments.baselines.traffic import recorded_traffic
from clients.experiments.kinds.method_kind import MethodRound, MethodRun
from clients.runs.metrics import Quality
from clients.runs.open_run import open_memory_run

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.experiments.definition import Method
    from clients.experiments.kinds.method_kind import MethodTask
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun

RUN = "run"
"""The name of the only run of a home."""


def require(configuration: Configuration, method: Method) -> None:
    """Refuse what could not be played: nothing that the configuration has not refused already."""


def play(task: MethodTask) -> MethodRun:
    """Play a run on the memory ledger."""
    watched = task.stopwatch.watched
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory_run(Path(folder), RUN, task.configuration, watched=watched) as run,
    ):
        return play_run(run, task)


def play_run(run: OpenedRun, task: MethodTask) -> MethodRun:
    """Play every round of a run that is at its beginning, and return the result."""
    dimension = run.population.model.dimension
    traffic = CommitteeTraffic(dimension) if task.counts_bytes else None
    if traffic is not None:
        run.simulation.on_step = traffic.take

    def ended(row: RoundMetrics) -> None:
        if traffic is not None:
            traffic.close(row)
        task.on_round()

    rows = run.go_on(ended)
    return MethodRun(
        rounds=tuple(_round(row) for row in rows),
        floor=run.measure.floor,
        samples=tuple(run.population.data.sample_counts),
        malicious=run.population.malicious,
        head=rows[-1].head,
        bytes={} if traffic is None else recorded_traffic(traffic.rounds, dimension),
    )


def _round(row: RoundMetrics) -> MethodRound:
    return MethodRound(
        quality=Quality(
            accuracy=row.accuracy,
            loss=row.loss,
            training_loss=row.training_loss,
            client_accuracy=row.client_accuracy,
            backdoor_success=row.backdoor_success,
        ),
        trained=row.trained,
        served=row.served,
        aggregated=row.accepted,
    )
