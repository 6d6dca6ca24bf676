"""Runs the remaining trials and cells of an experiment in parallel processes, a row for each."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from clients.experiments import cells, rows
from clients.experiments.cells import RepeatedCell
from clients.experiments.plan import Cell, ExperimentPlan, Job, digest_of
from clients.experiments.rows import CellRow, ChoiceRow, ExperimentRows, Row, TrialRow
from clients.runs.metrics import measured_sets
from clients.runs.population import populate
from ledger.io.home import naming
from ledger.io.processes import TaskPool
from ledger.protocol.errors import CmflError, ConfigurationError

AS_CONFIGURED = 1.0  # the factor of a method whose rate is not chosen


def choose_rates(plan: ExperimentPlan, tried: Iterable[TrialRow]) -> list[ChoiceRow]:
    """Return the choice of each method with a row for all its trials.

    The best mean counts. If two are equal, the rate nearer to the configured one counts, and then
    the smaller. A double and a half are equally near.
    """
    finals = {row.cell: row.final for row in tried}
    trials: defaultdict[str, list[Job]] = defaultdict(list)
    for trial in plan.trials:
        trials[trial.cell.method.name].append(trial)
    choices = []
    for method, of in trials.items():
        if not all(trial.name in finals for trial in of):
            continue
        by_factor: defaultdict[float, list[float]] = defaultdict(list)
        for trial in of:
            by_factor[trial.factor].append(finals[trial.name])
        means = {
            factor: round(fmean(values), rows.DECIMALS) for factor, values in by_factor.items()
        }
        best = max(means, key=lambda f: (means[f], -max(f, 1 / f), -f))
        choice = ChoiceRow(
            experiment=plan.experiment,
            method=method,
            factor=best,
            finals={f"{factor:g}": mean for factor, mean in means.items()},
            seeds=tuple(sorted({trial.cell.seed for trial in of})),
            digest=digest_of_trials(of),
        )
        choices.append(choice)
    return choices


def factors(plan: ExperimentPlan, choices: Iterable[ChoiceRow]) -> dict[str, float]:
    """Return what each method's configured learning rate is multiplied by."""
    methods = {cell.method.name: cell.is_tuned for cell in plan.cells}
    chosen_factors = {row.method: row.factor for row in choices if row.method in methods}
    return chosen_factors | {m: AS_CONFIGURED for m, is_tuned in methods.items() if not is_tuned}


def digest_of_trials(trials: Iterable[Job]) -> str:
    """Return the digest of what a choice follows from, 0x-hex."""
    return digest_of(sorted(trial.digest for trial in trials))


@dataclass(frozen=True, slots=True)
class RowStore:
    """The rows of an experiment on disk."""

    out: Path
    experiment: str

    @property
    def path(self) -> Path:
        return self.out / f"{self.experiment}.jsonl"

    @property
    def folder(self) -> Path:
        return self.out / self.experiment

    def rows(self) -> ExperimentRows:
        return rows.read_rows(self.path)

    def rows_of(self, plan: ExperimentPlan) -> ExperimentRows:
        found = self.rows()
        trials = {trial.name: trial.digest for trial in plan.trials}
        expected: list[tuple[CellRow | TrialRow, str | None]]
        expected = [(row, plan.row_digest(row)) for row in found.cells]
        expected += [(row, trials.get(row.cell)) for row in found.trials]
        for row, digest in expected:
            if row.digest != digest:
                self._refuse(f"{row.cell} ({row.digest[:10]}, and now {(digest or 'gone')[:10]})")
        due = {choice.method: choice for choice in choose_rates(plan, found.trials)}
        for choice in found.choices:
            tried = [trial for trial in plan.trials if trial.cell.method.name == choice.method]
            if not tried or digest_of_trials(tried) != choice.digest:
                self._refuse(f"the learning rate of {choice.method}")
            if due.get(choice.method, choice) != choice:
                self._refuse(f"the learning rate of {choice.method} is not what its trials say")
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the rows for writing, and cut off the half line of a killed process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # A lock on the folder leaves no file behind.
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rows.unpack(self.out, self.experiment)
            rows.cut_torn_line(self.path)
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
        rows.append_row(self.path, row)

    def _refuse(self, what: str) -> None:
        raise ConfigurationError(
            f"experiment {self.experiment} has changed since {self.path} was started: {what}; "
            "restore its TOML, preset or data, remove that row, or name another folder with --out"
        )


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A cell or trial could not be carried out."""

    job: str
    reason: str


Event: TypeAlias = str | CellRow | TrialRow | JobFailed
"""What a process reports: the name of a job whose round ended, a row, or a failure."""


@dataclass(slots=True)
class ExperimentProgress:
    """Progress of an experiment; `jobs` and `rounds` count what had no row at the start."""

    jobs: int = 0
    rounds: int = 0
    done: int = 0
    job: str = ""
    rows: list[CellRow | TrialRow] = field(default_factory=list)
    failures: list[JobFailed] = field(default_factory=list)


def require_data(plan: ExperimentPlan, there: ExperimentRows) -> None:
    """Load the data of every kind of remaining cell once, and refuse what does not fit."""
    looked_at: set[str] = set()
    for cell in remaining_cells(plan, there):
        configuration = cell.configuration
        settings = configuration.data, configuration.model, configuration.evaluation
        parts = configuration.protocol.clients, *settings, configuration.malice
        if repr(parts) in looked_at:
            continue
        looked_at.add(repr(parts))
        with naming(f"cell {cell.name}", ConfigurationError):
            population = populate(configuration)
            seed, attack = configuration.seed, population.data_attack
            measured_sets(population.clean, configuration.evaluation, seed, attack)


def remaining_cells(plan: ExperimentPlan, there: ExperimentRows) -> list[Cell]:
    """Return the cells that have no row yet, in order."""
    played = {row.cell for row in there.cells}
    return [cell for cell in plan.cells if cell.name not in played]


def run_experiment(
    plan: ExperimentPlan,
    store: RowStore,
    processes: TaskPool,
    on_progress: Callable[[ExperimentProgress], None],
) -> ExperimentProgress:
    """Run everything without a row: trials, choices of learning rates, cells.

    `on_progress` is called after each round and each row. A failed job has no row; the next run
    tries it again. Cells of a method with a failed trial have no learning rate and do not run.
    """
    store.rows_of(plan)  # refused before anything is made
    progress = ExperimentProgress()

    def keep(event: Event) -> None:
        """Record an event in the process that writes the rows."""
        if isinstance(event, str):
            progress.done, progress.job = progress.done + 1, event
        elif isinstance(event, JobFailed):
            progress.job = event.job
            progress.failures.append(event)
        else:
            store.add(event)
            progress.job = event.cell
            progress.rows.append(event)
        on_progress(progress)

    with store.writing():
        there = store.rows_of(plan)
        tried = {row.cell for row in there.trials}
        trials = [trial for trial in plan.trials if trial.name not in tried]
        remaining = remaining_cells(plan, there)
        progress.jobs = len(trials) + len(remaining)
        progress.rounds = sum(cell.rounds for cell in [*(job.cell for job in trials), *remaining])
        play = partial(run_job, store.folder, plan.data)
        processes.run(play, trials, keep)
        there = store.rows()
        choices = {row.method: row for row in there.choices}
        for choice in choose_rates(plan, there.trials):
            if choice.method not in choices:
                store.add(choice)
                choices[choice.method] = choice
        rates = factors(plan, choices.values())
        methods = ((cell, cell.method.name) for cell in remaining)
        processes.run(play, [Job(cell, rates[of]) for cell, of in methods if of in rates], keep)
    return progress


def run_job(folder: Path, data: Path | None, job: Job, report: Callable[[Event], None]) -> None:
    """Run a cell or a trial, and report its rounds and its row."""
    on_round = partial(report, job.name)
    try:
        if job.is_trial:
            report(cells.play_trial(job, on_round))
        else:
            report(cells.play_cell(job, folder, data, on_round))
    except CmflError as error:
        report(JobFailed(job.name, str(error)))


def repeat_cell(
    plan: ExperimentPlan, store: RowStore, name: str, home: Path, on_round: Callable[[], None]
) -> RepeatedCell:
    """Play a cell again on a fresh chain, and audit it there."""
    cell = plan.cell(name)
    row = next((row for row in store.rows().cells if row.cell == name), None)
    if row is None:
        raise ConfigurationError(f"{store.path} has no row of cell {name!r}; run the cell first")
    if row.ledger is None:
        raise ConfigurationError(
            f"cell {name!r} was not on a chain; only the first seed of each CMFL cell is"
        )
    if row.digest != cell.digest:
        raise ConfigurationError(
            f"cell {name!r} has changed since its row was written ({row.digest[:10]}, and now "
            f"{cell.digest[:10]}); restore the experiment's TOML, preset or data"
        )
    factor = factors(plan, store.rows().choices).get(cell.method.name)
    if factor is None:
        raise ConfigurationError(
            f"{store.path} has no choice of a learning rate for {cell.method.name}, which "
            f"cell {name!r} used; restore the published file"
        )
    cell = cell.at_rate(factor)
    task = cells.task_of(cell, on_round)
    run = cells.play_on_chain(cell, task, home, store.folder.name, plan.data)
    again = cells.row_of(cell, run.played, row.seconds, run.evidence)
    differences = cells.saved_file_differences(
        store.out, run.evidence, run.configuration, run.report
    )
    return RepeatedCell(row, again, run.report, tuple(differences))
