"""`cmfl deploy`: the contract on a chain, with its clients registered and a manifest written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.console import AsJson, print_json, say
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
from ledger.home import Home


def deploy(
    home: HomeFolder = DEFAULT_HOME,
    name: Annotated[str, typer.Option("--name", help="Name of the run.")] = "run",
    preset: Annotated[str | None, typer.Option("--preset", help="A preset.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over preset or file.")
    ] = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    confirmations: Confirmations = 0,
    json: AsJson = False,
) -> None:
    """Deploy a run's contract without running a round; doing it again changes nothing."""
    from clients.configuration import load
    from clients.runs import prepare

    configuration = load(preset, config, tuple(setting or ()))
    where = Where(home, rpc_url=rpc_url, chain_id=chain_id)
    with where.writer(keystore, password_file, confirmations) as chain:
        _, manifest = prepare(home, name, configuration, chain, where.blobs())
    if json:
        print_json(asdict(manifest))
        return
    say(f"contract {manifest.address} on chain {manifest.chain_id}")
    say(f"created in block {manifest.block} by transaction {manifest.transaction}")
    say(f"configuration {manifest.config}")
    say(f"manifest {Home(home).run(name).manifest}")
    say(f"go on with: cmfl run --home {home} --name {name} --resume")
