"""Plays one cell and makes its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clients.experiments.baselines import MethodRound
from clients.experiments.cells import Cell, Trial
from clients.experiments.execution.chain_run import play_and_save
from clients.experiments.execution.stopwatch import Stopwatch
from clients.experiments.kinds import MethodRun, MethodTask, kind_named
from clients.experiments.rows import (
    CellRow,
    CellSeconds,
    ChainEvidence,
    TrialRow,
    final_of,
    round_values,
    rounded,
)
from ledger.distances.machine_code import NoMachineCodeError, machine_code
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class CellJob:
    """A cell that is to be played.

    Attributes:
        data: folder of the data; None where no file is needed.
    """

    cell: Cell
    factor: float
    folder: Path
    data: Path | None

    @property
    def name(self) -> str:
        return self.cell.name


def play_cell(job: CellJob, on_round: Callable[[], None]) -> CellRow:
    """Play a cell; a run on a chain is audited."""
    cell = job.cell.at_rate(job.factor)
    task = task_of(cell, on_round)
    evidence: ChainEvidence | None = None
    if cell.is_recorded:
        played, evidence = play_and_save(cell, task, job.folder, job.data)
    else:
        played = kind_named(cell.method.kind).play(task)
    return row_of(cell, played, _seconds(cell, task), evidence)


def play_trial(trial: Trial, on_round: Callable[[], None]) -> TrialRow:
    """Play a trial for the choice of a learning rate."""
    cell = trial.cell.at_rate(trial.factor)
    task = task_of(cell, on_round)
    played = kind_named(cell.method.kind).play(task)
    final = final_of([round_.quality.accuracy for round_ in played.rounds])
    if final is None:
        raise ConfigurationError(f"{trial.name}: no accuracy to choose a learning rate by")
    return TrialRow(
        cell=trial.name,
        experiment=cell.experiment,
        method=cell.method.name,
        condition=cell.condition,
        axes=cell.axes,
        seed=cell.seed,
        digest=trial.digest,
        factor=trial.factor,
        learning_rate=cell.configuration.training.learning_rate,
        final=final,
        seconds=_seconds(cell, task),
    )


def row_of(
    cell: Cell, played: MethodRun, seconds: CellSeconds, evidence: ChainEvidence | None
) -> CellRow:
    """Return the row of a played cell.

    Args:
        evidence: of its run on a chain; None without one.
    """
    rounds, malicious = played.rounds, played.malicious
    quality = [round_.quality for round_ in rounds]
    accuracy = round_values(round_.accuracy for round_ in quality)
    trained = [round_.trained for round_ in rounds]
    aggregated = [round_.aggregated for round_ in rounds]
    served = [round_.served for round_ in rounds if round_.served is not None]
    last = quality[-1].client_accuracy if quality else None
    times = played.times_aggregated
    sizes = cell.configuration.parameters(dimension=1)
    return CellRow(
        cell=cell.name,
        experiment=cell.experiment,
        number=cell.number,
        method=cell.method.name,
        kind=cell.method.kind,
        condition=cell.condition,
        axes=cell.axes,
        seed=cell.seed,
        digest=cell.digest,
        learning_rate=cell.configuration.training.learning_rate,
        rounds=cell.configuration.protocol.rounds,
        accuracy=accuracy,
        loss=round_values(round_.loss for round_ in quality),
        training_loss=round_values(round_.training_loss for round_ in quality),
        backdoor_success=round_values(round_.backdoor_success for round_ in quality),
        floor=rounded(played.floor),
        final=final_of(accuracy),
        malicious_accepted=_share_of(aggregated, malicious),
        malicious_trained=_counts(trained, malicious),
        malicious_members=_counts(served, malicious) if served else None,
        malicious_aggregated=_counts(aggregated, malicious),
        accepted_honest=_accepted_honest(rounds, malicious),
        times_aggregated=_times(aggregated, len(played.samples)) if times is None else times,
        samples=played.samples,
        malicious=tuple(sorted(int(client) for client in malicious)),
        attack=_attack(cell) if malicious else None,
        client_accuracy=None if last is None else round_values(last),
        seconds=seconds,
        bytes=played.bytes,
        ledger=evidence,
        extra={"committee": sizes.members, "trainers": sizes.trainers, **played.extra},
    )


def _attack(cell: Cell) -> str | None:
    malice = cell.configuration.malice
    return malice.attack if malice.on is None else f"{malice.attack} on {malice.on}"


def task_of(cell: Cell, on_round: Callable[[], None]) -> MethodTask:
    """Return the task of a cell, its stopwatch running."""
    # Whoever is measured first in a process shall not pay for compiling what all of them use.
    with suppress(NoMachineCodeError):
        machine_code()
    stopwatch = Stopwatch()

    def ended() -> None:
        stopwatch.lap()
        on_round()

    return MethodTask(cell.configuration, cell.method, cell.counts_bytes, stopwatch, ended)


def _seconds(cell: Cell, task: MethodTask) -> CellSeconds:
    return task.stopwatch.seconds(is_committee=cell.method.kind == "cmfl")


def _counts(
    groups: Sequence[Collection[ClientId]], malicious: frozenset[ClientId]
) -> tuple[int, ...]:
    return tuple(len(malicious.intersection(group)) for group in groups)


def _share_of(
    groups: Sequence[Collection[ClientId]], malicious: frozenset[ClientId]
) -> float | None:
    whole = sum(map(len, groups))
    return rounded(sum(_counts(groups, malicious)) / whole) if whole else None


def _accepted_honest(rounds: Sequence[MethodRound], malicious: frozenset[ClientId]) -> float | None:
    """Return the share of honest trainers that were aggregated, None without any."""
    trained = [set(round_.trained) - malicious for round_ in rounds]
    whole = sum(map(len, trained))
    accepted = sum(
        len(honest.intersection(round_.aggregated))
        for honest, round_ in zip(trained, rounds, strict=True)
    )
    return rounded(accepted / whole) if whole else None


def _times(groups: Sequence[Collection[ClientId]], clients: int) -> tuple[int, ...]:
    times: Counter[int] = Counter(int(client) for group in groups for client in group)
    return tuple(times[client] for client in range(clients))
