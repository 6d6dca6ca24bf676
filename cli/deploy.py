"""`cmfl deploy`: the contract on a chain, with its clients registered and a manifest written."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.codes import WRONG
from cli.console import AsJson, command_line, print_json, print_line
from cli.options import (
    DEFAULT_HOME,
    DEFAULT_RUN,
    URL_VARIABLE,
    ChainId,
    Config,
    Confirmations,
    HomeFolder,
    Keystore,
    MaxFee,
    MaxTip,
    OldName,
    PasswordFile,
    Preset,
    RpcUrl,
    RunToMake,
    Settings,
    one_name,
)
from cli.registry import RegistryFile, agreed_owners
from cli.sender import Sender
from cli.where import Where
from ledger.home import Home

if TYPE_CHECKING:
    from clients.configuration import Configuration
    from ledger.protocol.types import RegisteredClient


def deploy(
    home: HomeFolder = DEFAULT_HOME,
    name: RunToMake = DEFAULT_RUN,
    old_name: OldName = None,
    preset: Preset = None,
    config: Config = None,
    setting: Settings = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    confirmations: Confirmations = None,
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
    registry: RegistryFile = None,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be sent and what it costs; send nothing."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Deploy a run's contract, without a round; doing it again changes nothing.

    With --dry-run it ends with 2 if the sender does not own enough.
    """
    from clients.configuration import load
    from clients.runs.preparing import prepare

    name = one_name(name, old_name)
    configuration = load(preset, config, tuple(setting or ()))
    owners = None if registry is None else agreed_owners(registry, name, configuration)
    where, sender = (
        Where(home, rpc_url=rpc_url, chain_id=chain_id),
        Sender(keystore, password_file, confirmations, max_fee, max_tip),
    )
    if dry:
        _show_dry_run(where, name, configuration, owners, sender, json=json)
        return
    with where.writer(sender) as chain:
        _, _, manifest = prepare(home, name, configuration, chain, where.blobs(), owners=owners)
    if json:
        print_json(asdict(manifest))
        return
    print_line(f"contract {manifest.address} on chain {manifest.chain_id}")
    print_line(f"created in block {manifest.block} by transaction {manifest.transaction}")
    print_line(f"configuration {manifest.config}")
    print_line(f"manifest {Home(home).run(name).manifest}")
    if owners is None:
        _print_next(where, name, sender)
    else:
        print_line("each owner goes on with: cmfl join, which says what is missing")


def _show_dry_run(
    where: Where,
    name: str,
    configuration: Configuration,
    owners: tuple[RegisteredClient, ...] | None,
    sender: Sender,
    *,
    json: bool,
) -> None:
    from cli.dry_run import dry_run, print_dry_run

    found = dry_run(where, name, configuration, owners, sender)
    if json:
        print_json(asdict(found))
    else:
        print_dry_run(found)
    if not found.is_affordable:
        raise typer.Exit(WRONG)


def _print_next(where: Where, name: str, sender: Sender) -> None:
    """Print the command that begins the rounds, with all that it needs and nothing secret."""
    words: list[object] = ["run", "--home", where.home, "--run", name, "--resume"]
    shown_url = ""
    if where.rpc_url is not None:
        words += ["--chain-id", where.chain_id]
        shown_url = f" --rpc-url {quoted(where.rpc_url)}"
    for option, value in (
        ("--keystore", sender.keystore),
        ("--password-file", sender.password_file),
        ("--confirmations", sender.confirmations),
    ):
        words += [] if value is None else [option, value]
    print_line(f"go on with: {command_line(*words)}{shown_url}")
    if URL_VARIABLE in shown_url and not os.environ.get(URL_VARIABLE):
        print_line(f"once {URL_VARIABLE} holds the node's URL, which may have a key in it")


def quoted(url: str) -> str:
    """Return a node's URL for a shell, or the variable where it may hold a secret.

    Args:
        url: of the node.
    """
    from ledger.bounded_http import HttpServer

    try:
        shown = HttpServer(url, timeout_seconds=1).shown_url
    except ValueError:
        shown = ""  # whoever speaks to the node has refused it, with the reason
    return shlex.quote(url) if url.rstrip("/") == shown else f'"${URL_VARIABLE}"'
