"""`cmfl demo`: every method, clean and attacked, with an audit and the served history."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer import Option

from api.settings import Settings
from clients.experiments.definition import definition_of
from clients.experiments.report import format_estimate
from clients.experiments.rows import LAST_ROUNDS, CellRow
from cmfl.commands import code_of, console
from cmfl.commands.doctor import is_port_taken
from cmfl.commands.process import results as result_stream
from cmfl.commands.process import until_interrupted
from cmfl.where import Target, open_history
from ledger.audit.checks.rounds import FALSE_SCORES
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.audit.report_text import readable
from ledger.io.extras import require_extra
from ledger.io.home import DISK, Home, sole_process
from ledger.io.processes import task_pool
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from clients.experiments.plan import Cell


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

SeedResults: TypeAlias = tuple[list[CellRow], dict[str, AuditReport]]
"""The rows of one seed's runs, and the audits of those on the ledger by their names."""


RECORDED, AVERAGED, AUDITED = "rounds on the ledger", "rounds of FedAvg", "audits"
"""Kinds of work, named as the progress bar shows them."""


def cells_of(seed: int, rounds: int) -> dict[str, Cell]:
    """Return the runs of one seed by their names, attacked ones first."""
    from clients.experiments.plan import plan_experiment

    changes = {"seeds": [seed], "settings": [f"protocol.rounds={rounds}"]}
    definition = definition_of(EXPERIMENT, "demo").model_copy(update=changes)
    cells = plan_experiment("demo", definition).cells
    return {f"{cell.method.name}-{cell.condition}-seed{cell.seed}": cell for cell in cells}


def play_all(homes: list[Path], rounds: int) -> list[SeedResults]:
    """Run and audit everything with a progress bar, one process and one home for each seed."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn())
    with console.progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[said]}")) as bar:
        steps = steps_of(len(homes), rounds)
        tasks = {step: bar.add_task(step, total=total, said="") for step, total in steps.items()}
        jobs = [(home, seed, rounds) for seed, home in enumerate(homes)]
        with task_pool(min(len(jobs), os.cpu_count() or 1)) as pool:
            return pool.run(
                play_seed, jobs, lambda done: bar.update(tasks[done[0]], advance=1, said=done[1])
            )


def steps_of(seeds: int, rounds: int) -> dict[str, int]:
    """Return the number of steps of each kind."""
    cells = cells_of(0, rounds).values()
    recorded = seeds * sum(cell.is_recorded for cell in cells)
    averaged = seeds * len(cells) - recorded
    return {RECORDED: recorded * rounds, AVERAGED: averaged * rounds, AUDITED: recorded}


def play_seed(job: tuple[Path, int, int], report: Callable[[tuple[str, str]], None]) -> SeedResults:
    """Play and audit a job (home, seed, rounds) on a chain; report kind and run of each step."""
    from clients.experiments.cells import on_chain, row_of, task_of
    from clients.experiments.kinds import kind_named, play_run
    from clients.runs.open_run import open_run

    (home, seed, rounds), rows, reports = job, [], {}
    # Not durable: after a power cut the demo starts from the beginning.
    blobs = FolderBlobs(Home(home).blobs)
    cells = cells_of(seed, rounds)
    chain_id = next(iter(cells.values())).configuration.chain_id()
    with Target(home).writer(new_chain_id=chain_id) as chain:
        for name, cell in cells.items():
            kind = RECORDED if cell.is_recorded else AVERAGED
            task = task_of(cell, partial(report, (kind, name)))
            if cell.is_recorded:
                with open_run(home, name, on_chain(cell.configuration), chain, blobs) as run:
                    result = play_run(run, task)
            else:
                result = kind_named(cell.method.kind).play(task)
            seconds = task.stopwatch.seconds(is_committee=cell.is_recorded)
            rows.append(row_of(cell, result, seconds, evidence=None))
    for name in (name for name, cell in cells.items() if cell.is_recorded):
        target = Target(home, name)
        with target.reader() as chain_as_read:
            reports[name] = audit(target.ledger(chain_as_read), target.blobs())
        report((AUDITED, name))
    return rows, reports


SHOWN_RUN = "I-attacked-seed0"
RESULT_COLUMNS = ("clean", "attacked", "accepted attackers")
MOST_PORTS = 100  # how many are looked at for one on which nobody listens


def demo(
    home: Annotated[Path, "Folder to create or replace."] = Path("demo-home"),
    seeds: Annotated[int, Option(min=1, max=20, help="Number of runs of each kind.")] = 4,
    rounds: Annotated[int, Option(min=1, max=1000, help="Number of rounds of each run.")] = 40,
    port: Annotated[
        int, Option(min=1, max=65535, help="Port of the REST service, or the next free port.")
    ] = 8000,
) -> None:
    """Run, audit and compare on real digits, then serve the history."""
    begun = time.monotonic()
    require_extra("api", "the demo's service needs")
    with _made_anew(home):
        _introduce(home, seeds, rounds)
        console.print_line()
        homes = [home, *(home / f"seed{seed}" for seed in range(1, seeds))]
        played = play_all(homes, rounds)
        reports = {name: report for _, audits in played for name, report in audits.items()}
        console.print_line()
        # The last round with a false score that was caught.
        caught = [f.round for f in reports[SHOWN_RUN].findings if f.kind == FALSE_SCORES]
        shown = max((number for number in caught if number is not None), default=1)
        console.print_line(f"Round {shown} of {SHOWN_RUN}, in plain words", bold=True)
        with open_history(Target(home, SHOWN_RUN)) as history:
            for line in history.explanation(shown)["sentences"]:
                console.print_prose(line)
        console.print_line()
        results = results_of([row for rows, _ in played for row in rows])
        DISK.write_whole(home / "results.json", f"{json.dumps(results, indent=1)}\n".encode())
        show_table(results)
        console.print_line()
        console.print_line(f"Audit of {SHOWN_RUN}, from chain and blobs alone", bold=True)
        # Not folded: a head and a command are to be copied whole.
        console.print_lines(readable(reports[SHOWN_RUN]))
        passed = sum(report.outcome is AuditOutcome.PASSED for report in reports.values())
        sentence = f"{passed} of {len(reports)} runs on the ledger pass their audit."
        console.print_line(sentence, bold=True)
        console.print_line()
        console.print_line(f"All this took {time.monotonic() - begun:.0f} s. Look further:")
        look = ("rounds", "list"), ("rounds", "explain", shown), ("clients", "list"), ("audit",)
        for words in look:
            console.print_line(f"  {console.command_line(*words, home=home, run=SHOWN_RUN)}")
        codes = {code_of(each.outcome) for each in reports.values()} - {0}
        if codes:
            raise typer.Exit(min(codes))
        _serve(home, port)


@contextmanager
def _made_anew(home: Path) -> Iterator[None]:
    """Replace a demo's folder and hold it; never delete another folder, or one in use."""
    mark = home / "made-by-cmfl-demo"
    if home.exists() and not mark.exists():
        raise ConfigurationError(f"--home {home} exists and was not made by a demo; name another")
    if home.exists():
        with sole_process(home, mark.name, "--home"):
            shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with sole_process(home, mark.name, "--home"):
        yield


def _introduce(home: Path, seeds: int, rounds: int) -> None:
    steps = steps_of(seeds, rounds)
    console.print_prose(
        "60 clients hold non-IID parts of real digits. Half of them are active in a round, 12 as "
        "its committee. In attacked runs, 30% of the clients send the reverse of their update, "
        "and one other client publishes false scores whenever it is a member. The contract "
        f"enforces each decision, on a local EVM. Each seed has its own chain; seed 0 has "
        f"{home}/chain.sqlite."
    )
    console.print_prose(
        f"{steps[RECORDED]} rounds are recorded and audited. For comparison, "
        f"{steps[AVERAGED]} rounds of FedAvg run; they have no committee, so nothing is "
        "recorded."
    )


def results_of(rows: list[CellRow]) -> dict[str, Any]:
    """Return the table as JSON, with the class of machines that repeat its values."""
    from dataclasses import asdict
    from statistics import fmean

    from clients.training.engine_factory import environment_here

    seeds, rounds = len({row.seed for row in rows}), rows[0].rounds
    methods = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        attacked = [row for row in own if row.condition == ATTACKED]
        of_fedavg = f"FedAvg, {own[0].extra.get('participants')} clients"
        methods[f"CMFL, strategy {method}" if own[0].kind == "cmfl" else of_fedavg] = {
            "clean": [row.final or 0.0 for row in own if row.condition != ATTACKED],
            "attacked": [row.final or 0.0 for row in attacked],
            "accepted attackers": [row.malicious_accepted or 0.0 for row in attacked],
        }
    return {
        "command": f"cmfl demo --seeds {seeds} --rounds {rounds}",
        "environment": asdict(environment_here("lockstep", "cpu")),
        "seeds": seeds,
        "last rounds": min(LAST_ROUNDS, rounds),
        "most frequent class": fmean(row.floor or 0.0 for row in rows),
        "methods": methods,
    }


def show_table(results: dict[str, Any]) -> None:
    """Print the accuracy of the models, and the share of attackers' updates in them."""
    seeds = results["seeds"]
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    console.print_table(
        f"Test accuracy, mean of the last {results['last rounds']} rounds: {over}",
        ("method", *RESULT_COLUMNS),
        [
            (method, *(format_estimate(values[column]) for column in RESULT_COLUMNS))
            for method, values in results["methods"].items()
        ],
    )
    console.print_prose(
        "Accepted attackers: the attackers' share of the updates in the model. A model "
        f"that always predicts the most frequent class scores {results['most frequent class']:.3f}."
    )
    console.print_prose(
        "Strategies I and II are the paper's, for a committee without attackers. I accepts the "
        "updates nearest to the committee. II accepts the farthest, and so accepts attackers. III "
        "is made for attackers: it accepts the updates within a right angle of the round's peers."
    )


def _serve(home: Path, port: int) -> None:
    """Serve the history: until interrupted at a terminal, else just long enough to show it."""
    from api.app import serve

    requested, port = port, free_port(port)
    if port != requested:
        console.print_line(f"Port {requested} is in use; the service uses port {port}.")
    address, settings = f"http://127.0.0.1:{port}", Settings(home=home)
    if result_stream().isatty():
        console.print_line()
        _print_links(home, address)
        console.print_line("Ctrl-C ends the service.")
        with until_interrupted():
            serve(settings, "127.0.0.1", port)
        return
    threading.Thread(target=serve, args=(settings, "127.0.0.1", port), daemon=True).start()
    console.print_line(f"REST service at {address} answered: {_deployments(address)} runs.")
    _print_links(home, address)
    again = console.command_line("serve", home=home, port=port)
    console.print_line(f"Start it again with: {again}")


def free_port(port: int) -> int:
    """Return the first free port of this machine, from the given one on."""
    looked_at = range(port, min(port + MOST_PORTS, 65536))
    free = next((number for number in looked_at if not is_port_taken(number)), None)
    if free is None:
        raise ConfigurationError(
            f"--port {port}: the port and the next {len(looked_at) - 1} are in use; name another"
        )
    return free


def _print_links(home: Path, address: str) -> None:
    where = Target(home, SHOWN_RUN)
    with where.reader() as chain:
        # /v1/chains/NAME/deployments/ADDRESS
        name, contract = where.history(chain).path.split("/")[3::2]
    console.print_line(f"{SHOWN_RUN} on the dashboard:")
    # On its own line, so that no terminal wraps it.
    console.print_line(f"  {address}/dashboard/#/runs/{name}/{contract}", bold=True)
    console.print_line(f"All runs: {address}/dashboard/  REST: {address}/openapi.json")


def _deployments(address: str) -> int:
    for _ in range(50):
        try:
            with urllib.request.urlopen(f"{address}/v1/status", timeout=5) as answer:  # noqa: S310
                return len(json.load(answer)["deployments"])
        except OSError:
            time.sleep(0.1)
    raise ConfigurationError(f"{address}: the service does not respond")
