"""The demo's runs: every method, clean and attacked, one chain for each seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from cmfl.access.target import Target
from cmfl.commands.console import progress
from ledger.io.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clients.experiments.cells import Cell
    from clients.experiments.kinds import MethodRun, MethodTask
    from clients.experiments.rows import CellRow
    from ledger.audit.report import AuditReport
    from ledger.chain.ports import ChainWriter
    from ledger.storage.blobs import FolderBlobs

ATTACKED = "attacked"
EXPERIMENT = """
title = "Demo"
number = 2
preset = "digits"
seeds = [0]

[[methods]]
name = "FedAvg-active"
kind = "federated"
participants = "active"

[[methods]]
name = "FedAvg-trainers"
kind = "federated"
participants = "trainers"

[[methods]]
name = "I"
rules = "digits"

[[methods]]
name = "II"
rules = "digits"
settings = ["protocol.strategy=2"]

[[methods]]
name = "III"
rules = "robust"

[[conditions]]
name = "attacked"
settings = [
  "malice.attack=back-gradient",
  "malice.malicious_rate=0.3",
  "malice.members.false-scores=1",
]

[[conditions]]
name = "clean"
"""
"""The demo as an experiment: FedAvg with as many clients as CMFL activates or trains, and CMFL."""


@dataclass(frozen=True, slots=True)
class SeedRuns:
    """All runs of one seed, on a chain of their own.

    Attributes:
        home: of chain, blobs and runs.
        seed: of the runs.
        rounds: of each run.
    """

    home: Path
    seed: int
    rounds: int


@dataclass(frozen=True, slots=True)
class SeedResults:
    """The results of one seed.

    Attributes:
        rows: of all runs.
        reports: the audits of the runs on the ledger, by run name.
    """

    rows: list[CellRow]
    reports: dict[str, AuditReport]


class DemoStep(StrEnum):
    """A kind of work, named as the progress bar shows it."""

    RECORDED = "rounds on the ledger"
    AVERAGED = "rounds of FedAvg"
    AUDITED = "audits"


@dataclass(frozen=True, slots=True)
class StepDone:
    """One more completed round or audit.

    Attributes:
        run: name of the run.
        step: kind of the work.
    """

    run: str
    step: DemoStep


def seed_home(home: Path, seed: int) -> Path:
    """Return the home of a seed's runs; that of seed 0 is the demo's own, which is served."""
    return home if seed == 0 else home / f"seed{seed}"


def cells_of(seed: int, rounds: int) -> list[Cell]:
    """Return the runs of one seed in their order: attacked ones first.

    Args:
        seed: of the runs.
        rounds: of each run.
    """
    from clients.experiments.catalogue import definition_of
    from clients.experiments.plan import plan_experiment

    changes = {"seeds": [seed], "settings": [f"protocol.rounds={rounds}"]}
    definition = definition_of(EXPERIMENT, "demo").model_copy(update=changes)
    return list(plan_experiment("demo", definition).cells)


def run_name(cell: Cell) -> str:
    """Return the name of a cell's run in its home."""
    return f"{cell.method.name}-{cell.condition}-seed{cell.seed}"


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

        processes = min(len(jobs), os.cpu_count() or 1)
        with task_pool(processes) as pool:
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
    """Play all runs of one seed, and audit those on the ledger.

    Args:
        job: the runs.
        report: called after each round and each audit.
    """
    from clients.experiments.execution.cell_run import row_of, task_of
    from ledger.audit.engine import audit
    from ledger.storage.blobs import FolderBlobs

    rows = []
    # Not durable: after a power cut the demo starts from the beginning.
    blobs = FolderBlobs(Home(job.home).blobs)
    cells = cells_of(job.seed, job.rounds)
    with Target(job.home).writer(new_chain_id=cells[0].configuration.chain_id()) as chain:
        for cell in cells:
            kind = DemoStep.RECORDED if cell.is_recorded else DemoStep.AVERAGED
            step = StepDone(run_name(cell), kind)
            task = task_of(cell, partial(report, step))
            result = _play(job.home, cell, task, chain, blobs)
            seconds = task.stopwatch.seconds(is_committee=cell.is_recorded)
            rows.append(row_of(cell, result, seconds, evidence=None))
    reports = {}
    for name in (run_name(cell) for cell in cells if cell.is_recorded):
        run = Target(job.home, name)
        with run.reader() as chain_as_read:
            reports[name] = audit(run.ledger(chain_as_read), run.blobs())
        report(StepDone(name, DemoStep.AUDITED))
    return SeedResults(rows, reports)


def _play(
    home: Path, cell: Cell, task: MethodTask, chain: ChainWriter, blobs: FolderBlobs
) -> MethodRun:
    """Play a cell; CMFL goes over the chain of the home."""
    from clients.experiments.execution.chain_run import on_chain
    from clients.experiments.kinds import kind_named, play_run
    from clients.runs.open_run import open_run

    if not cell.is_recorded:
        return kind_named(cell.method.kind).play(task)
    configuration = on_chain(cell.configuration)
    with open_run(home, run_name(cell), configuration, chain, blobs) as run:
        return play_run(run, task)
