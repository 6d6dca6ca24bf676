"""`cmfl run`: simulated rounds, all actors in one process, recorded and enforced on a chain."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.console import AsJson, console, print_json, say
from cli.where import (
    DEFAULT_HOME,
    ChainId,
    Confirmations,
    HomeFolder,
    Keystore,
    PasswordFile,
    RpcUrl,
    Where,
)

if TYPE_CHECKING:
    from clients.metrics import RoundMetrics
    from clients.runs import Run
    from ledger.chain.contract.committee_ledger import CommitteeLedger


def run(
    home: HomeFolder = DEFAULT_HOME,
    name: Annotated[str, typer.Option("--name", help="Name of the run.")] = "run",
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="digits (default), digits-by-writer, robust or smoke."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over preset or file.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Short for --set protocol.rounds=N.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that train; changes no result.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take a run up where it was cut off.")
    ] = False,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    confirmations: Confirmations = 0,
    json: AsJson = False,
) -> None:
    """Run simulated rounds until the last one, or take a run up again.

    Settings of the protocol section: clients, active_rate, committee_rate, aggregation_rate,
    rounds, strategy, scoring, distance, threshold, quorum, server_rate, scores_checked, beacon,
    commit_blocks, deadline_blocks, view_seconds.
    """
    from clients.runs import opened, recorded_configuration, require_new
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.errors import ConfigurationError

    settings = list(setting or [])
    if rounds is not None:
        settings.append(f"protocol.rounds={rounds}")
    if workers is not None:
        settings.append(f"machine.workers={workers}")
    if resume:
        if preset or config:
            raise ConfigurationError("--resume takes the run's own configuration, no other")
        configuration = recorded_configuration(home, name, tuple(settings))
    else:
        from clients.configuration import load

        configuration = load(preset, config, tuple(settings))
        require_new(home, name)
    where = Where(home, rpc_url=rpc_url, chain_id=chain_id)
    with (
        where.writer(keystore, password_file, confirmations) as chain,
        opened(home, name, configuration, chain, where.blobs()) as started,
    ):
        manifest = started.manifest
        ledger = CommitteeLedger(chain, manifest.address, manifest.block)
        rows = _watch(started, ledger, quiet=json)
        state = ledger.state()
    last = rows[-1] if rows else None
    result: dict[str, Any] = {
        "run": name,
        "address": manifest.address,
        "round": state.round,
        "rounds_now": len(rows),
        "head": state.head,
        "last": asdict(last) if last else None,
    }
    if json:
        print_json(result)
        return
    if last is None:
        say(f"{name} had ended with round {state.round} already")
    say(f"contract {manifest.address}, head 0x{state.head.hex()}")


def _watch(started: Run, ledger: CommitteeLedger, *, quiet: bool) -> list[RoundMetrics]:
    """Run the rounds behind a progress bar."""
    total = started.configuration.protocol.rounds
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[row]}", markup=False),
    )
    with Progress(*columns, console=console) if not quiet else nullcontext() as bar:
        if bar is None:
            return started.go_on(lambda _: None)
        finished = started.simulation.chain is None
        done = total if finished else ledger.state().round - 1
        task = bar.add_task(started.folder.paths.path.name, total=total, completed=done, row="")
        return started.go_on(lambda row: bar.update(task, completed=row.round, row=_short(row)))


def _short(row: RoundMetrics) -> str:
    accepted = f"{len(row.accepted)} accepted, {row.malicious_accepted} of them malicious"
    state = accepted if row.decided else "abandoned"
    return f"accuracy {row.accuracy:.3f}, {state}"
