"""`cmfl demo`: real data, malicious clients, enforced rounds, an audit, and the REST service."""

from __future__ import annotations

import json as json_module
import shutil
import socket
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.console import console, print_table
from cli.where import Where

if TYPE_CHECKING:
    from clients.comparison import Outcome
    from ledger.audit.report import AuditReport

SETTINGS = (
    'malice.attack="back-gradient"',
    "malice.malicious_rate=0.3",
    "malice.members.false-scores=1",
)
SHOWN_RUN = "I-attacked-seed0"


def demo(
    home: Annotated[Path, typer.Option("--home", help="A folder that is made anew.")] = Path(
        "demo-home"
    ),
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Runs of each kind.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of each run.")] = 40,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the REST service.")] = 8000,
) -> None:
    """Run, audit and compare on scikit-learn's digits, then serve the history."""
    begun = time.monotonic()
    _require_own(home)
    console.print(
        "60 clients hold non-IID parts of real digits; half are active in a round, 12 on the\n"
        "committee. 30 % attack: they send the opposite of their update. One member lies about\n"
        f"its scores. The contract enforces each decision, on a local EVM in {home}/chain.sqlite.\n"
    )
    outcomes = _runs(home, seeds, rounds)
    reports = _audits(home, outcomes)
    console.print()
    shown = _telling_round(reports[SHOWN_RUN])
    _show_round(home, shown)
    console.print()
    _show_table(outcomes)
    console.print()
    _show_audits(reports)
    console.print(f"\nAll this took {time.monotonic() - begun:.0f} s. Look further:")
    for command in ("rounds list", f"rounds explain {shown}", "clients list", "audit"):
        console.print(f"  {_program()} {command} --home {home} --run {SHOWN_RUN}")
    if any(not report.ok for report in reports.values()):
        raise typer.Exit(1)
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


def _runs(home: Path, seeds: int, rounds: int) -> list[Outcome]:
    from clients.comparison import METHODS, Comparison
    from clients.configuration import load

    where = Where(home)
    configuration = load("digits", settings=(*SETTINGS, f"protocol.rounds={rounds}"))
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with (
        where.writer() as chain,
        Progress(*columns, TimeElapsedColumn(), console=console) as bar,
    ):
        task = bar.add_task("rounds", total=len(METHODS) * 2 * seeds * rounds)

        def on_round(label: str, _round: int, _total: int) -> None:
            bar.update(task, advance=1, description=label)

        comparison = Comparison(home, chain, where.blobs(), configuration, range(seeds))
        outcomes = comparison.run(on_round)
        bar.update(task, description="rounds")
    return outcomes


def _audits(home: Path, outcomes: list[Outcome]) -> dict[str, AuditReport]:
    from ledger.audit.audit import audit

    names = [outcome.run for outcome in outcomes if outcome.run]
    reports = {}
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("audits", total=len(names))
        for name in names:
            where = Where(home, name)
            with where.reader() as chain:
                reports[name] = audit(where.ledger(chain), where.blobs())
            bar.update(task, advance=1)
    return reports


def _telling_round(report: AuditReport) -> int:
    """Return the last round in which a lie was caught, 1 if none was."""
    return max((f.round for f in report.findings if f.kind == "false scores"), default=1)


def _show_round(home: Path, shown: int) -> None:
    from ledger.audit.explain import explain_round
    from ledger.audit.history import read_round, read_run

    where = Where(home, SHOWN_RUN)
    with where.reader() as chain:
        ledger = where.ledger(chain)
        sizes = ledger.deployment()
        history = read_round(ledger, sizes, shown, where.blobs())
    assert history is not None, "an audited round is on the chain"
    console.print(f"[bold]Round {shown} of {SHOWN_RUN}, in plain words[/bold]")
    for line in explain_round(history, read_run(where.blobs(), sizes.config)):
        console.print(line, markup=False)


def _show_table(outcomes: list[Outcome]) -> None:
    from clients.comparison import LAST_ROUNDS

    found = defaultdict(list)
    for outcome in outcomes:
        found[outcome.method, outcome.attacked].append(outcome.accuracy)
    rows = [
        (method, *(_mean_and_range(found[method, attacked]) for attacked in (False, True)))
        for method in dict.fromkeys(outcome.method for outcome in outcomes)
    ]
    print_table(
        f"Test accuracy, mean of the last {LAST_ROUNDS} rounds: mean (least to most) over seeds",
        ("method", "clean", "attacked"),
        rows,
    )


def _mean_and_range(values: list[float]) -> str:
    return f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def _show_audits(reports: dict[str, AuditReport]) -> None:
    from ledger.audit.report import readable

    console.print(f"[bold]Audit of {SHOWN_RUN}, from chain and blobs alone[/bold]")
    for line in readable(reports[SHOWN_RUN]):
        console.print(line, markup=False)
    passed = sum(report.outcome == "passed" for report in reports.values())
    console.print(f"[bold]{passed} of {len(reports)} runs on the ledger pass their audit.[/bold]")


def _serve(home: Path, port: int) -> None:
    """Serve the history: until interrupted at a terminal, else just long enough to show it."""
    from api.serve import serve
    from api.settings import Settings

    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            console.print(
                f"Port {port} is taken; serve with: {_program()} serve --home {home} --port N"
            )
            return
    address = f"http://127.0.0.1:{port}"
    if sys.stdout.isatty():
        console.print(f"\nREST service at {address}/docs, until Ctrl-C")
        serve(Settings(home=home), "127.0.0.1", port)
        return
    thread = threading.Thread(
        target=serve, args=(Settings(home=home), "127.0.0.1", port), daemon=True
    )
    thread.start()
    count = len(_get(f"{address}/v1/deployments")["deployments"])
    console.print(f"REST service at {address} answered: {count} deployments.")
    console.print(f"Start it again with: {_program()} serve --home {home} --port {port}")


def _program() -> str:
    """Return how this very program is called from here."""
    return "cmfl" if shutil.which("cmfl") else sys.argv[0]


def _get(url: str) -> dict[str, list[object]]:
    """Return a JSON answer, waiting for the service to come up."""
    for attempt in range(50):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
                value: dict[str, list[object]] = json_module.load(answer)
                return value
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.1)
    raise AssertionError("the loop above returns or raises")
