"""`cmfl demo`, from the first run to the service."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import command_line, print_line, print_prose
from cmfl.commands.demo.runs import DemoStep, SeedRuns, play_all, seed_home, steps_of
from cmfl.commands.demo.served_history import serve_runs
from cmfl.commands.demo.tables import (
    SHOWN_RUN,
    require_passed,
    results_of,
    round_to_show,
    show_audits,
    show_round,
    show_table,
)
from ledger.io.home import DISK

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    from ledger.io.extras import require_extra

    begun = time.monotonic()
    require_extra("api", "the demo's service needs")
    with _made_anew(home):
        _play(home, seeds, rounds, port, begun)


def _play(home: Path, seeds: int, rounds: int, port: int, begun: float) -> None:
    _introduce(home, seeds, rounds)
    print_line()
    played = play_all([SeedRuns(seed_home(home, seed), seed, rounds) for seed in range(seeds)])
    reports = {name: report for seed in played for name, report in seed.reports.items()}
    print_line()
    shown = round_to_show(reports[SHOWN_RUN])
    show_round(home, shown)
    print_line()
    results = results_of([row for seed in played for row in seed.rows])
    DISK.write_whole(home / "results.json", f"{json.dumps(results, indent=1)}\n".encode())
    show_table(results)
    print_line()
    show_audits(reports)
    print_line()
    print_line(f"All this took {time.monotonic() - begun:.0f} s. Look further:")
    for words in (
        ("rounds", "list"),
        ("rounds", "explain", shown),
        ("clients", "list"),
        ("audit",),
    ):
        print_line(f"  {command_line(*words, '--home', home, '--run', SHOWN_RUN)}")
    require_passed(reports.values())
    serve_runs(home, SHOWN_RUN, port)


@contextmanager
def _made_anew(home: Path) -> Iterator[None]:
    """Make the folder anew and hold it; never delete what a demo did not make, or uses now."""
    from ledger.io.folder_lock import sole_process
    from ledger.protocol.errors import ConfigurationError

    mark = home / "made-by-cmfl-demo"
    if home.exists() and not mark.exists():
        raise ConfigurationError(f"--home {home} exists and was not made by a demo: name another")
    if home.exists():
        with sole_process(home, mark.name, "--home"):
            shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with sole_process(home, mark.name, "--home"):
        yield


def _introduce(home: Path, seeds: int, rounds: int) -> None:
    """Print what is going to be played."""
    steps = steps_of(seeds, rounds)
    others = _other_homes(home, seeds)
    print_prose(
        "60 clients hold non-IID parts of real digits; half are active in a round, 12 of these as "
        "its committee. In attacked runs 30 % of the clients send the opposite of their update, "
        "and one other lies about its scores whenever it is a member. The contract enforces each "
        f"decision, on a local EVM: {home}/chain.sqlite has the runs of seed 0."
        + (f" The other seeds have chains of their own in {others}." if seeds > 1 else "")
    )
    print_prose(
        f"{steps[DemoStep.RECORDED]} rounds are recorded and audited; to compare with, "
        f"{steps[DemoStep.AVERAGED]} of FedAvg are played beside them, which has no committee and "
        "so nothing to record."
    )


def _other_homes(home: Path, seeds: int) -> str:
    last = f" to {seed_home(home, seeds - 1)}" if seeds > 2 else ""
    return f"{seed_home(home, 1)}{last}"
