"""Runs the remaining trials and cells of an experiment in parallel processes, a row for each.

A cell of CMFL may run on its own chain, with its audit. The chain id follows from the cell and the
clock is fixed, so a repetition has the same blocks, head and report.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from clients.configuration.run_configuration import rule_sources
from clients.configuration.schema import Configuration
from clients.experiments.baselines import MethodRound
from clients.experiments.definition import DATA
from clients.experiments.kinds import RUN, MethodRun, MethodTask, Stopwatch, kind_named, play_run
from clients.experiments.plan import Cell, ExperimentPlan, Trial, digest_of
from clients.experiments.rows import (
    DECIMALS,
    CellRow,
    CellSeconds,
    ChainEvidence,
    ChoiceRow,
    ExperimentRows,
    Row,
    TrialRow,
    append_row,
    cut_torn_line,
    final_of,
    read_rows,
    round_values,
    rounded,
    unpack,
)
from clients.runs.metrics import measured_sets
from clients.runs.open_run import open_run
from clients.runs.population import populate
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditReport
from ledger.chain.contract.deploy import connect
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import fresh_chain_id
from ledger.distances.machine_code import NoMachineCodeError, machine_code
from ledger.io.home import DISK, Disk, Home
from ledger.io.processes import TaskPool
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs

CONFIGURATION = "config.toml"
REPORT = "report.json"

_HOME = "home"


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A cell's run that was played on a chain.

    Attributes:
        configuration: as it was played, as TOML that names no folder of this machine.
    """

    configuration: str
    played: MethodRun
    report: AuditReport
    evidence: ChainEvidence


class HastyDisk(Disk):
    """A disk without sync: a cell that a power cut ends is played again."""

    def sync_files(self, paths: Collection[Path]) -> None:
        """Return at once."""

    def sync_folder(self, folder: Path) -> None:
        """Return at once."""


def play_and_save(
    cell: Cell, task: MethodTask, folder: Path, data: Path | None
) -> tuple[MethodRun, ChainEvidence]:
    """Play a cell on a chain, audit it, save configuration and report, and remove chain and blobs.

    Args:
        data: the folder of the data; saved files do not name it.
    """
    own = folder / cell.name
    home = own / _HOME
    shutil.rmtree(home, ignore_errors=True)  # of a cell that was in flight when it was killed
    try:
        chain_run = play_on_chain(cell, task, home, folder.name, data)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report = f"{json.dumps(chain_run.report.as_dict(), indent=1)}\n"
    DISK.write_whole(own / REPORT, report.encode())
    DISK.write_whole(own / CONFIGURATION, chain_run.configuration.encode())
    return chain_run.played, chain_run.evidence


def play_on_chain(
    cell: Cell, task: MethodTask, home: Path, experiment: str, data: Path | None
) -> ChainRun:
    """Play a cell on its own chain and audit it from chain and blobs alone.

    The chain has another id for each cell, and the same each time. The home of chain, blobs and run
    is made. `experiment` is the folder of the experiment's runs, `data` that of the data.
    """
    configuration = on_chain(task.configuration)
    paths, disk = Home(home), HastyDisk()
    blobs = FolderBlobs(paths.blobs, disk=disk)
    chain_id = fresh_chain_id(int(cell.digest.removeprefix("0x"), 16))
    home.mkdir(parents=True, exist_ok=True)
    with (
        paths.writing(),
        EmbeddedChain.create(
            paths.chain, chain_id=chain_id, clock=lambda: 0.0, synchronous="NORMAL"
        ) as chain,
    ):
        with open_run(
            home, RUN, configuration, chain, blobs, disk=disk, watched=task.stopwatch.watched
        ) as run:
            played = play_run(run, task)
            assert run.manifest is not None, "a run on a chain has a manifest"
            manifest, played_with = run.manifest, run.configuration
        options = AuditOptions(rules=rule_sources(configuration))
        report = audit(connect(chain, manifest), blobs, options)
    evidence = ChainEvidence(
        chain_id=chain_id,
        address=manifest.address,
        head=str(played.head),
        verdict=report.outcome,
        report=f"{experiment}/{cell.name}/{REPORT}",
        configuration=f"{experiment}/{cell.name}/{CONFIGURATION}",
    )
    return ChainRun(portable(played_with, data), played, report, evidence)


def on_chain(configuration: Configuration) -> Configuration:
    """Return a configuration for a chain in place of the memory ledger."""
    machine = configuration.machine.model_copy(update={"ledger": "chain"})
    return configuration.model_copy(update={"machine": machine})


def portable(configuration: Configuration, data: Path | None) -> str:
    """Return a configuration as TOML that names no folder of this machine."""
    text = configuration.to_toml()
    return text if data is None else text.replace(f'"{data}/', f'"{DATA}/')


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


AS_CONFIGURED = 1.0
"""The factor of a method whose rate is not chosen."""


def choose_rates(plan: ExperimentPlan, rows: Iterable[TrialRow]) -> list[ChoiceRow]:
    """Return the choice of each method all of whose trials have been run.

    The best mean counts; of two as good, that which is nearer to the configured rate, and then the
    smaller.
    """
    rows_by_name = {row.cell: row for row in rows}
    trials: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in plan.trials:
        trials[trial.cell.method.name].append(trial)
    return [
        _choice(plan.experiment, method, of, rows_by_name)
        for method, of in trials.items()
        if all(trial.name in rows_by_name for trial in of)
    ]


def factors(plan: ExperimentPlan, choices: Iterable[ChoiceRow]) -> dict[str, float]:
    """Return what each method's configured learning rate is multiplied by."""
    methods = {cell.method.name: cell.is_tuned for cell in plan.cells}
    chosen_factors = {row.method: row.factor for row in choices if row.method in methods}
    return chosen_factors | {
        method: AS_CONFIGURED for method, tuned in methods.items() if not tuned
    }


def digest_of_trials(trials: Iterable[Trial]) -> str:
    """Return the digest of what a choice follows from, 0x-hex."""
    return digest_of(sorted(trial.digest for trial in trials))


def _choice(
    experiment: str, method: str, trials: list[Trial], rows: Mapping[str, TrialRow]
) -> ChoiceRow:
    finals: defaultdict[float, list[float]] = defaultdict(list)
    for trial in trials:
        finals[trial.factor].append(rows[trial.name].final)
    means = {factor: round(fmean(values), DECIMALS) for factor, values in finals.items()}
    best = max(means, key=lambda factor: (means[factor], -_octaves(factor), -factor))
    return ChoiceRow(
        experiment=experiment,
        method=method,
        factor=best,
        finals={f"{factor:g}": mean for factor, mean in means.items()},
        seeds=tuple(sorted({trial.cell.seed for trial in trials})),
        digest=digest_of_trials(trials),
    )


def _octaves(factor: float) -> float:
    """Return how far a factor is from 1, the same for a double and a half."""
    return max(factor, 1 / factor)


@dataclass(frozen=True, slots=True)
class RowStore:
    """The rows of an experiment on disk."""

    out: Path
    experiment: str

    @property
    def path(self) -> Path:
        """The file of the rows."""
        return self.out / f"{self.experiment}.jsonl"

    @property
    def folder(self) -> Path:
        """The folder with a folder of each cell that was on a chain."""
        return self.out / self.experiment

    def rows(self) -> ExperimentRows:
        """Return all rows; none where there is no file."""
        return read_rows(self.path)

    def rows_of(self, plan: ExperimentPlan) -> ExperimentRows:
        """Return all rows, checked to be of this plan."""
        rows = self.rows()
        trials = {trial.name: trial.digest for trial in plan.trials}
        expected: list[tuple[CellRow | TrialRow, str | None]]
        expected = [(row, plan.row_digest(row)) for row in rows.cells]
        expected += [(row, trials.get(row.cell)) for row in rows.trials]
        for row, digest in expected:
            if row.digest != digest:
                self._refuse(f"{row.cell} ({row.digest[:10]}, and now {(digest or 'gone')[:10]})")
        due = {choice.method: choice for choice in choose_rates(plan, rows.trials)}
        for choice in rows.choices:
            tried = [trial for trial in plan.trials if trial.cell.method.name == choice.method]
            if not tried or digest_of_trials(tried) != choice.digest:
                self._refuse(f"the learning rate of {choice.method}")
            if due.get(choice.method, choice) != choice:
                self._refuse(f"the learning rate of {choice.method} is not what its trials say")
        return rows

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the rows for writing, and cut off the half line of a killed process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The folder, not the rows: nothing is left behind to tell a lock by.
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unpack(self.out, self.experiment)
            cut_torn_line(self.path)
            yield
        except BlockingIOError as error:
            raise ConfigurationError(
                f"another process runs experiment {self.experiment} in {self.out}: wait for it, or "
                f"name another folder with --out"
            ) from error
        finally:
            os.close(descriptor)

    def add(self, row: Row) -> None:
        """Add a row; it survives a power cut."""
        append_row(self.path, row)

    def _refuse(self, what: str) -> None:
        raise ConfigurationError(
            f"experiment {self.experiment} has changed since {self.path} was started: {what}; put "
            f"its TOML, preset or data back, take that row away, or name another folder with --out"
        )


Job: TypeAlias = CellJob | Trial


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A cell or trial could not be carried out."""

    job: str
    reason: str


Event: TypeAlias = str | CellRow | TrialRow | JobFailed
"""What a process reports: the name of a job whose round ended, a row, or a failure."""


@dataclass(slots=True)
class ExperimentProgress:
    """Progress of an experiment.

    Attributes:
        rounds: how many there are to play, those of cells that have their rows left out.
    """

    rounds: int = 0
    done: int = 0
    job: str = ""
    rows: list[CellRow | TrialRow] = field(default_factory=list)
    failures: list[JobFailed] = field(default_factory=list)


def require_data(plan: ExperimentPlan, rows: ExperimentRows) -> None:
    """Load the data of every kind of cell that is left once, and refuse what does not fit."""
    looked_at: set[str] = set()
    for cell in remaining_cells(plan, rows):
        configuration = cell.configuration
        settings = configuration.data, configuration.model, configuration.evaluation
        parts = configuration.protocol.clients, *settings, configuration.malice
        if repr(parts) in looked_at:
            continue
        looked_at.add(repr(parts))
        try:
            population = populate(configuration)
            seed, attack = configuration.seed, population.data_attack
            measured_sets(population.clean, configuration.evaluation, seed, attack)
        except ConfigurationError as error:
            raise ConfigurationError(f"cell {cell.name}: {error}") from error


def remaining_cells(plan: ExperimentPlan, rows: ExperimentRows) -> list[Cell]:
    """Return the cells that have no row yet, in order."""
    there = {row.cell for row in rows.cells}
    return [cell for cell in plan.cells if cell.name not in there]


def run_experiment(
    plan: ExperimentPlan,
    store: RowStore,
    processes: TaskPool,
    on_progress: Callable[[ExperimentProgress], None],
) -> ExperimentProgress:
    """Run everything without a row: trials, choices of learning rates, cells.

    Args:
        on_progress: called after each round and each row.

    Returns:
        How it went; a cell that failed has no row, and is tried again by the next run.
    """
    store.rows_of(plan)  # refused before anything is made
    progress = ExperimentProgress()
    with store.writing():
        rows = store.rows_of(plan)
        tried = {row.cell for row in rows.trials}
        trials = [trial for trial in plan.trials if trial.name not in tried]
        cells = remaining_cells(plan, rows)
        progress.rounds = sum(job.rounds for job in trials) + sum(job.rounds for job in cells)
        keep = partial(_keep, store, progress, on_progress)
        processes.run(run_job, trials, keep)
        rates = _rates(plan, store)
        left = [
            CellJob(cell, rates[cell.method.name], store.folder, plan.data)
            for cell in cells
            if cell.method.name in rates
        ]
        processes.run(run_job, left, keep)
    return progress


def run_job(job: Job, report: Callable[[Event], None]) -> None:
    """Run a cell or a trial, and report its rounds and its row."""

    def on_round() -> None:
        report(job.name)

    try:
        row = play_trial(job, on_round) if isinstance(job, Trial) else play_cell(job, on_round)
    except CmflError as error:
        report(JobFailed(job.name, str(error)))
    else:
        report(row)


def _keep(
    store: RowStore,
    progress: ExperimentProgress,
    on_progress: Callable[[ExperimentProgress], None],
    event: Event,
) -> None:
    """Record an event in the process that writes the rows."""
    if isinstance(event, str):
        progress.done, progress.job = progress.done + 1, event
    elif isinstance(event, JobFailed):
        progress.failures.append(event)
    else:
        store.add(event)
        progress.rows.append(event)
    on_progress(progress)


def _rates(plan: ExperimentPlan, store: RowStore) -> dict[str, float]:
    """Return the factor of each method that has one; what is chosen now is written down.

    A method whose trials failed has none: its cells cannot be run.
    """
    rows = store.rows()
    chosen_methods = {row.method for row in rows.choices}
    new = [
        choice for choice in choose_rates(plan, rows.trials) if choice.method not in chosen_methods
    ]
    for choice in new:
        store.add(choice)
    return factors(plan, (*rows.choices, *new))
