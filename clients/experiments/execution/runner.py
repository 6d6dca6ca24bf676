"""Runs the remaining cells of an experiment in parallel processes, and writes a row for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from clients.experiments.cells import Cell, Trial
from clients.experiments.execution.cell_run import CellJob, play_cell, play_trial
from clients.experiments.execution.learning_rates import choose_rates, factors
from clients.experiments.execution.row_store import RowStore
from clients.experiments.plan import ExperimentPlan
from clients.experiments.rows import CellRow, ExperimentRows, TrialRow
from clients.runs.evaluation_sets import measured_sets
from clients.runs.population import populate
from ledger.io.processes import TaskPool
from ledger.protocol.errors import CmflError, ConfigurationError

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
