"""The demo's runs: every method, clean and attacked, one chain for each seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cmfl.commands.console import progress
from cmfl.where import Target
from ledger.io.home import Home

if TYPE_CHECKING:
    from clients.experiments.plan import Cell
    from clients.experiments.rows import CellRow
    from ledger.audit.report import AuditReport

ATTACKED = "attacked"
EXPERIMENT = """
title = "Demo"
number = 2
preset = "digits"
seeds = [0]
methods = [
  {name = "FedAvg-active", kind = "federated", participants = "active"},
  {name = "FedAvg-trainers", kind = "federated", participants = "trainers"},
  {name = "I", rules = "digits"},
  {name = "II", rules = "digits", settings = ["protocol.strategy=2"]},
  {name = "III", rules = "robust"},
]
conditions = [
  {name = "attacked", settings = [
    "malice.attack=back-gradient",
    "malice.malicious_rate=0.3",
    "malice.members.false-scores=1",
  ]},
  {name = "clean"},
]
"""
"""The demo as an experiment: FedAvg with as many clients as CMFL activates or trains, and CMFL."""


class SeedRuns(NamedTuple):
    """All runs of one seed, on a chain of their own in a home."""

    home: Path
    seed: int
    rounds: int


class SeedResults(NamedTuple):
    """The rows of one seed's runs, and the audits of those on the ledger by their names."""

    rows: list[CellRow]
    reports: dict[str, AuditReport]


class DemoStep(StrEnum):
    """A kind of work, named as the progress bar shows it."""

    RECORDED = "rounds on the ledger"
    AVERAGED = "rounds of FedAvg"
    AUDITED = "audits"


class StepDone(NamedTuple):
    """One more round or audit of a run."""

    run: str
    step: DemoStep


def cells_of(seed: int, rounds: int) -> list[Cell]:
    """Return the runs of one seed in their order: attacked ones first."""
    from clients.experiments.definition import definition_of
    from clients.experiments.plan import plan_experiment

    changes = {"seeds": [seed], "settings": [f"protocol.rounds={rounds}"]}
    definition = definition_of(EXPERIMENT, "demo").model_copy(update=changes)
    return list(plan_experiment("demo", definition).cells)


def play_all(jobs: list[SeedRuns]) -> list[SeedResults]:
    """Run and audit everything with a progress bar, one process for each seed."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from ledger.io.processes import task_pool

    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn())
    with progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[said]}")) as bar:
        steps = steps_of(len(jobs), jobs[0].rounds)
        tasks = {step: bar.add_task(step, total=total, said="") for step, total in steps.items()}

        def on_progress(done: StepDone) -> None:
            bar.update(tasks[done.step], advance=1, said=done.run)

        with task_pool(min(len(jobs), os.cpu_count() or 1)) as pool:
            return pool.run(play_seed, jobs, on_progress)


def steps_of(seeds: int, rounds: int) -> dict[DemoStep, int]:
    """Return the number of steps of each kind."""
    cells = cells_of(0, rounds)
    recorded = seeds * sum(cell.is_recorded for cell in cells)
    averaged = seeds * len(cells) - recorded
    return {
        DemoStep.RECORDED: recorded * rounds,
        DemoStep.AVERAGED: averaged * rounds,
        DemoStep.AUDITED: recorded,
    }


def play_seed(job: SeedRuns, report: Callable[[StepDone], None]) -> SeedResults:
    """Play all runs of one seed, audit those on the ledger, and report each round and audit."""
    from clients.experiments.kinds import kind_named, play_run
    from clients.experiments.run import on_chain, row_of, task_of
    from clients.runs.open_run import open_run
    from ledger.audit.engine import audit
    from ledger.storage.blobs import FolderBlobs

    rows, reports = [], {}
    # Not durable: after a power cut the demo starts from the beginning.
    blobs = FolderBlobs(Home(job.home).blobs)
    cells = {
        f"{cell.method.name}-{cell.condition}-seed{cell.seed}": cell
        for cell in cells_of(job.seed, job.rounds)
    }
    chain_id = next(iter(cells.values())).configuration.chain_id()
    with Target(job.home).writer(new_chain_id=chain_id) as chain:
        for name, cell in cells.items():
            kind = DemoStep.RECORDED if cell.is_recorded else DemoStep.AVERAGED
            task = task_of(cell, partial(report, StepDone(name, kind)))
            if cell.is_recorded:
                with open_run(job.home, name, on_chain(cell.configuration), chain, blobs) as run:
                    result = play_run(run, task)
            else:
                result = kind_named(cell.method.kind).play(task)
            seconds = task.stopwatch.seconds(is_committee=cell.is_recorded)
            rows.append(row_of(cell, result, seconds, evidence=None))
    for name in (name for name, cell in cells.items() if cell.is_recorded):
        target = Target(job.home, name)
        with target.reader() as chain_as_read:
            reports[name] = audit(target.ledger(chain_as_read), target.blobs())
        report(StepDone(name, DemoStep.AUDITED))
    return SeedResults(rows, reports)
