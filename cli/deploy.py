"""`cmfl deploy`: the contract on a chain, with its clients registered and a manifest written."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict

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
    OldName,
    PasswordFile,
    Preset,
    RpcUrl,
    RunToMake,
    Settings,
    one_name,
)
from cli.sender import Sender
from cli.where import Where
from ledger.home import Home


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
    json: AsJson = False,
) -> None:
    """Deploy a run's contract, without a round; doing it again changes nothing."""
    from clients.configuration import load
    from clients.runs.preparing import prepare

    name = one_name(name, old_name)
    configuration = load(preset, config, tuple(setting or ()))
    where, sender = (
        Where(home, rpc_url=rpc_url, chain_id=chain_id),
        Sender(keystore, password_file, confirmations),
    )
    with where.writer(sender) as chain:
        _, _, manifest = prepare(home, name, configuration, chain, where.blobs())
    if json:
        print_json(asdict(manifest))
        return
    print_line(f"contract {manifest.address} on chain {manifest.chain_id}")
    print_line(f"created in block {manifest.block} by transaction {manifest.transaction}")
    print_line(f"configuration {manifest.config}")
    print_line(f"manifest {Home(home).run(name).manifest}")
    _print_next(where, name, sender)


def _print_next(where: Where, name: str, sender: Sender) -> None:
    """Print the command that begins the rounds, with all that it needs and nothing secret."""
    words: list[object] = ["run", "--home", where.home, "--run", name, "--resume"]
    shown_url = ""
    if where.rpc_url is not None:
        words += ["--chain-id", where.chain_id]
        shown_url = f" --rpc-url {_quoted(where.rpc_url)}"
    for option, value in (
        ("--keystore", sender.keystore),
        ("--password-file", sender.password_file),
        ("--confirmations", sender.confirmations),
    ):
        words += [] if value is None else [option, value]
    print_line(f"go on with: {command_line(*words)}{shown_url}")
    if URL_VARIABLE in shown_url and not os.environ.get(URL_VARIABLE):
        print_line(f"once {URL_VARIABLE} holds the node's URL, which may have a key in it")


def _quoted(url: str) -> str:
    """Return a node's URL for a shell, or the variable where it may hold a secret."""
    from ledger.bounded_http import HttpServer

    is_public = url.rstrip("/") == HttpServer(url, timeout_seconds=1).shown_url
    return shlex.quote(url) if is_public else f'"${URL_VARIABLE}"'
