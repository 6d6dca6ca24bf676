"""`cmfl demo`: real data, malicious clients, enforced rounds, an audit, and the REST service."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.codes import FAILED, INCOMPLETE
from cli.console import command_line, print_line, print_table, progress
from cli.serve import port_is_taken
from cli.where import Where
from ledger.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from clients.comparison import Outcome
    from clients.configuration import Configuration
    from ledger.audit.report import AuditReport

MALICE = (
    'malice.attack="back-gradient"',
    "malice.malicious_rate=0.3",
    "malice.members.false-scores=1",
)
SHOWN_RUN = "I-attacked-seed0"
MOST_PORTS = 100
"""How many are looked at for one on which nobody listens."""


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
class Played:
    """What all runs of one seed came to.

    Attributes:
        outcomes: of the runs.
        reports: the audits of those on the ledger, by run.
    """

    outcomes: list[Outcome]
    reports: dict[str, AuditReport]


class Work(StrEnum):
    """What there is to do, as it is called where it is shown."""

    RECORDED = "rounds on the ledger"
    AVERAGED = "rounds of FedAvg"
    AUDITED = "audits"


@dataclass(frozen=True, slots=True)
class Progressed:
    """That one more round is over, or one more audit.

    Attributes:
        run: which run.
        work: of which it was a step.
    """

    run: str
    work: Work


def demo(
    home: Annotated[Path, typer.Option("--home", help="A folder that is made anew.")] = Path(
        "demo-home"
    ),
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Runs of each kind.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of each run.")] = 40,
    port: Annotated[
        int,
        typer.Option(
            min=1, max=65535, help="Of the REST service; the next free one if it is taken."
        ),
    ] = 8000,
) -> None:
    """Run, audit and compare on real digits, then serve the history."""
    begun = time.monotonic()
    _require_own(home)
    print_line(
        "60 clients hold non-IID parts of real digits; half are active in a round, 12 of these as"
    )
    print_line(
        "its committee. In attacked runs 30 % of the clients send the opposite of their update,"
    )
    print_line(
        "and one other lies about its scores whenever it is a member. The contract enforces each"
    )
    print_line(f"decision, on a local EVM: {home}/chain.sqlite has the runs of seed 0.")
    if seeds > 1:
        print_line(f"The other seeds have chains of their own in {_other_homes(home, seeds)}.")
    steps = _steps(seeds, rounds)
    print_line(
        f"{steps[Work.RECORDED]} rounds are recorded and audited; to compare with,"
        f" {steps[Work.AVERAGED]} of FedAvg are"
    )
    print_line("played beside them, which has no committee and so nothing to record.")
    print_line()
    played = _play([SeedRuns(_seed_home(home, seed), seed, rounds) for seed in range(seeds)])
    outcomes = [outcome for one in played for outcome in one.outcomes]
    reports = {name: report for one in played for name, report in one.reports.items()}
    print_line()
    shown = _telling_round(reports[SHOWN_RUN])
    _show_round(home, shown)
    print_line()
    _show_table(outcomes, _configuration(rounds))
    print_line()
    _show_audits(reports)
    print_line()
    print_line(f"All this took {time.monotonic() - begun:.0f} s. Look further:")
    for words in (
        ("rounds", "list"),
        ("rounds", "explain", shown),
        ("clients", "list"),
        ("audit",),
    ):
        print_line(f"  {command_line(*words, '--home', home, '--run', SHOWN_RUN)}")
    _require_passed(reports.values())
    _serve(home, port)


def _require_own(home: Path) -> None:
    """Make the folder anew, but never delete what a demo did not make."""
    from ledger.protocol.errors import ConfigurationError

    mark = home / "made-by-cmfl-demo"
    if home.exists() and not mark.exists():
        raise ConfigurationError(f"--home {home} exists and was not made by a demo: name another")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    mark.touch()


def _seed_home(home: Path, seed: int) -> Path:
    """Return where a seed's runs are: those of seed 0 lie in the home itself, which is served."""
    return home if seed == 0 else home / f"seed{seed}"


def _other_homes(home: Path, seeds: int) -> str:
    last = f" to {_seed_home(home, seeds - 1)}" if seeds > 2 else ""
    return f"{_seed_home(home, 1)}{last}"


def _configuration(rounds: int) -> Configuration:
    from clients.configuration import load

    return load("digits", settings=(*MALICE, f"protocol.rounds={rounds}"))


def _play(jobs: list[SeedRuns]) -> list[Played]:
    """Run and audit everything, each seed in a process of its own, and show how far it is."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from clients.processes import in_processes

    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn())
    with progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[said]}")) as bar:
        steps = _steps(len(jobs), jobs[0].rounds)
        tasks = {work: bar.add_task(work, total=total, said="") for work, total in steps.items()}

        def on_progress(step: Progressed) -> None:
            bar.update(tasks[step.work], advance=1, said=step.run)

        processes = min(len(jobs), os.cpu_count() or 1)
        return in_processes(play_seed, jobs, processes, on_progress)


def _steps(seeds: int, rounds: int) -> dict[Work, int]:
    """Return how many steps of each kind there are; each method is played clean and attacked."""
    from clients.methods import METHODS, Committee

    recorded = 2 * seeds * sum(isinstance(method, Committee) for method in METHODS)
    averaged = 2 * seeds * len(METHODS) - recorded
    return {
        Work.RECORDED: recorded * rounds,
        Work.AVERAGED: averaged * rounds,
        Work.AUDITED: recorded,
    }


def play_seed(job: SeedRuns, report: Callable[[Progressed], None]) -> Played:
    """Run every method under one seed, attacked and clean, and audit what is on the ledger.

    Args:
        job: the runs.
        report: called after each round and each audit.
    """
    from clients.comparison import Comparison, Trial
    from clients.methods import METHODS, Committee
    from ledger.audit.audit import audit
    from ledger.blobs.store import FolderBlobs

    where = Where(job.home)
    recorded = {
        Trial(method, job.seed, attacked).name
        for method in METHODS
        for attacked in (True, False)
        if isinstance(method, Committee)
    }

    def on_round(run: str) -> None:
        report(Progressed(run, Work.RECORDED if run in recorded else Work.AVERAGED))

    with where.writer() as chain:
        # Not durable: a demo that a power cut ends is begun anew.
        blobs = FolderBlobs(Home(job.home).blobs)
        comparison = Comparison(job.home, chain, blobs, _configuration(job.rounds))
        outcomes = comparison.run([job.seed], on_round)
    reports = {}
    for name in (outcome.run for outcome in outcomes if outcome.run is not None):
        run = Where(job.home, name)
        with run.reader() as chain_as_read:
            reports[name] = audit(run.ledger(chain_as_read), run.blobs())
        report(Progressed(name, Work.AUDITED))
    return Played(outcomes, reports)


def _telling_round(report: AuditReport) -> int:
    """Return the last round in which a lie was caught, 1 if none was."""
    from ledger.audit.codes import FindingKind

    caught = [f.round for f in report.findings if f.kind is FindingKind.FALSE_SCORES]
    return max((number for number in caught if number is not None), default=1)


def _show_round(home: Path, shown: int) -> None:
    from ledger.history.facts.rounds import explanation_facts
    from ledger.history.facts.words import Told

    where = Where(home, SHOWN_RUN)
    with where.reader() as chain:
        history = where.history(chain)
        one = history.round(shown)
        assert one is not None, "an audited round is on the chain"
        facts = explanation_facts(Told.of(history, one))
    print_line(f"Round {shown} of {SHOWN_RUN}, in plain words", bold=True)
    for line in facts["sentences"]:
        print_line(line)


def _show_table(outcomes: list[Outcome], configuration: Configuration) -> None:
    from statistics import fmean

    from clients.comparison import LAST_ROUNDS
    from clients.methods import METHODS

    parameters = configuration.parameters(dimension=1)
    rows = []
    for method in METHODS:
        mine = [outcome for outcome in outcomes if outcome.method == method.name]
        attacked = [outcome for outcome in mine if outcome.attacked]
        rows.append(
            (
                method.title(parameters),
                _mean_and_error(outcome.accuracy for outcome in mine if not outcome.attacked),
                _mean_and_error(outcome.accuracy for outcome in attacked),
                _mean_and_error(outcome.malicious for outcome in attacked),
            )
        )
    seeds = len({outcome.seed for outcome in outcomes})
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    last = min(LAST_ROUNDS, parameters.rounds)
    print_table(
        f"Test accuracy, mean of the last {last} rounds: {over}",
        ("method", "clean", "attacked", "accepted attackers"),
        rows,
    )
    print_line(
        "Accepted attackers: which share of the updates that entered the model came from them."
    )
    print_line(
        "Strategy I accepts the updates nearest to the committee, II the farthest, III all within a"
    )
    print_line(
        "threshold that the committee certifies. II is the paper's for clients that are all honest:"
    )
    print_line(
        "it learns from those that differ most, and so lets in whoever attacks; do not use it else."
    )
    floor = fmean(outcome.floor for outcome in outcomes)
    print_line(f"Always answering the commonest class scores {floor:.3f}.")


def _mean_and_error(values: Iterable[float]) -> str:
    from statistics import fmean, stdev

    listed = list(values)
    if len(listed) == 1:
        return f"{listed[0]:.3f}"
    return f"{fmean(listed):.3f} ± {stdev(listed) / sqrt(len(listed)):.3f}"


def _show_audits(reports: dict[str, AuditReport]) -> None:
    from ledger.audit.codes import Outcome
    from ledger.audit.report import readable

    print_line(f"Audit of {SHOWN_RUN}, from chain and blobs alone", bold=True)
    for line in readable(reports[SHOWN_RUN]):
        print_line(line)
    passed = sum(report.outcome is Outcome.PASSED for report in reports.values())
    print_line(f"{passed} of {len(reports)} runs on the ledger pass their audit.", bold=True)


def _require_passed(reports: Iterable[AuditReport]) -> None:
    """End with exit code 1 for a contradiction, and 3 for what could not be checked.

    Raises:
        typer.Exit: not everything was checked and is true.
    """
    from ledger.audit.codes import Outcome

    found = {report.outcome for report in reports}
    if Outcome.FAILED in found:
        raise typer.Exit(FAILED)
    if Outcome.INCOMPLETE in found:
        raise typer.Exit(INCOMPLETE)


def _serve(home: Path, port: int) -> None:
    """Serve the history: until interrupted at a terminal, else just long enough to show it."""
    from api.serve import serve
    from api.settings import Settings

    again = command_line("serve", "--home", home, "--port")
    asked, port = port, free_port(port)
    if port != asked:
        print_line(f"Port {asked} is taken, and {port} is the next that is free.")
    address = f"http://127.0.0.1:{port}"
    if sys.stdout.isatty():
        print_line()
        print_line(f"Dashboard at {address}/dashboard/, REST at {address}/docs, until Ctrl-C")
        serve(Settings(home=home), "127.0.0.1", port)
        return
    thread = threading.Thread(
        target=serve, args=(Settings(home=home), "127.0.0.1", port), daemon=True
    )
    thread.start()
    count = len(_get(f"{address}/v1/status")["deployments"])
    print_line(f"REST service at {address} answered: {count} deployments.")
    print_line(f"The same for people: {address}/dashboard/")
    print_line(f"Start it again with: {again} {port}")


def free_port(port: int) -> int:
    """Return the first port of this machine, from one on, on which nobody listens.

    Args:
        port: the first to look at, above 0.

    Raises:
        ConfigurationError: there is none among those that are looked at.
    """
    from ledger.protocol.errors import ConfigurationError

    looked_at = range(port, min(port + MOST_PORTS, 65536))
    found = next((number for number in looked_at if not port_is_taken(number)), None)
    if found is None:
        raise ConfigurationError(
            f"--port {port}: somebody listens there and on the {len(looked_at) - 1} ports after it"
        )
    return found


def _get(url: str) -> dict[str, list[object]]:
    """Return a JSON answer, waiting for the service to come up."""
    import json
    import urllib.request

    for attempt in range(50):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
                value: dict[str, list[object]] = json.load(answer)
                return value
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.1)
    raise AssertionError("the loop above returns or raises")
