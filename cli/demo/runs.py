"""The demo's runs: every method, clean and attacked, each seed on a chain of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cli.console import progress
from cli.target import Target
from ledger.io.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clients.comparison import Outcome
    from clients.configuration.schema import Configuration
    from ledger.audit.report import AuditReport

ADVERSARY_SETTINGS = (
    'malice.attack="back-gradient"',
    "malice.malicious_rate=0.3",
    "malice.members.false-scores=1",
)


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
    """What all runs of one seed came to.

    Attributes:
        outcomes: of the runs.
        reports: the audits of those on the ledger, by run.
    """

    outcomes: list[Outcome]
    reports: dict[str, AuditReport]


class DemoStep(StrEnum):
    """What there is to do, as it is called where it is shown."""

    RECORDED = "rounds on the ledger"
    AVERAGED = "rounds of FedAvg"
    AUDITED = "audits"


@dataclass(frozen=True, slots=True)
class StepDone:
    """That one more round is over, or one more audit.

    Attributes:
        run: which run.
        work: of which it was a step.
    """

    run: str
    work: DemoStep


def seed_home(home: Path, seed: int) -> Path:
    """Return where a seed's runs are: those of seed 0 lie in the home itself, which is served.

    Args:
        home: of the demo.
        seed: of the runs.
    """
    return home if seed == 0 else home / f"seed{seed}"


def configuration_of(rounds: int) -> Configuration:
    """Return the settings of all attacked runs; methods, seeds and clean runs depart from them.

    Args:
        rounds: of each run.
    """
    from clients.configuration.loading import load

    return load("digits", settings=(*ADVERSARY_SETTINGS, f"protocol.rounds={rounds}"))


def play_all(jobs: list[SeedRuns]) -> list[SeedResults]:
    """Run and audit everything, each seed in a process of its own, and show how far it is.

    Args:
        jobs: one of each seed.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from clients.processes import in_processes

    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn())
    with progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[said]}")) as bar:
        steps = steps_of(len(jobs), jobs[0].rounds)
        tasks = {work: bar.add_task(work, total=total, said="") for work, total in steps.items()}

        def on_progress(step: StepDone) -> None:
            bar.update(tasks[step.work], advance=1, said=step.run)

        processes = min(len(jobs), os.cpu_count() or 1)
        return in_processes(play_seed, jobs, processes, on_progress)


def steps_of(seeds: int, rounds: int) -> dict[DemoStep, int]:
    """Return how many steps of each kind there are; each method is played clean and attacked.

    Args:
        seeds: runs of each kind.
        rounds: of each run.
    """
    from clients.methods import METHODS, Committee

    recorded = 2 * seeds * sum(isinstance(method, Committee) for method in METHODS)
    averaged = 2 * seeds * len(METHODS) - recorded
    return {
        DemoStep.RECORDED: recorded * rounds,
        DemoStep.AVERAGED: averaged * rounds,
        DemoStep.AUDITED: recorded,
    }


def play_seed(job: SeedRuns, report: Callable[[StepDone], None]) -> SeedResults:
    """Run every method under one seed, attacked and clean, and audit what is on the ledger.

    Args:
        job: the runs.
        report: called after each round and each audit.
    """
    from clients.comparison import Comparison, Trial
    from clients.methods import METHODS, Committee
    from ledger.audit.engine import audit
    from ledger.storage.blobs import FolderBlobs

    where = Target(job.home)
    recorded = {
        Trial(method, job.seed, attacked).name
        for method in METHODS
        for attacked in (True, False)
        if isinstance(method, Committee)
    }

    def on_round(run: str) -> None:
        report(StepDone(run, DemoStep.RECORDED if run in recorded else DemoStep.AVERAGED))

    with where.writer() as chain:
        # Not durable: a demo that a power cut ends is begun anew.
        blobs = FolderBlobs(Home(job.home).blobs)
        comparison = Comparison(job.home, chain, blobs, configuration_of(job.rounds))
        outcomes = comparison.run([job.seed], on_round)
    reports = {}
    for name in (outcome.run for outcome in outcomes if outcome.run is not None):
        run = Target(job.home, name)
        with run.reader() as chain_as_read:
            reports[name] = audit(run.ledger(chain_as_read), run.blobs())
        report(StepDone(name, DemoStep.AUDITED))
    return SeedResults(outcomes, reports)
