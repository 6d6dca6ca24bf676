"""`cmfl deploy`: deploy a run's contract, register its clients, and write the manifest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.console import AsJson, command_line, complain, print_json, print_line
from cmfl.commands.exit_codes import WRONG
from cmfl.commands.next_command import DATA_VARIABLE, print_next, quoted_url, variable_in_shell
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import (
    DEFAULT_HOME,
    DEFAULT_RUN,
    KEY_VARIABLE,
    URL_VARIABLE,
    AllowPredictableSeeds,
    HomeFolder,
    RunToMake,
)
from cmfl.commands.registry import RegistryFile, agreed_owners
from cmfl.commands.sender import Sender
from cmfl.commands.source_options import CappedSenderOptions
from cmfl.where import Target
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.owners import Owners
    from clients.configuration.schema import Configuration
    from ledger.chain.contract.manifest import Manifest


@expand_groups
def deploy(
    home: HomeFolder = DEFAULT_HOME,
    name: RunToMake = DEFAULT_RUN,
    *,
    configured: ConfigurationOptions,
    node: CappedSenderOptions,
    registry: RegistryFile = None,
    allow_predictable_seeds: AllowPredictableSeeds = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent and its cost; send nothing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Deploy a run's contract, without a round; repeating it changes nothing.

    With --dry-run the exit code is 2 if the sender does not own enough.
    """
    from clients.configuration.parsing import ALLOW_PREDICTABLE, lot_warning
    from clients.runs.open_run import prepared
    from cmfl.commands.dry_run import dry_run, print_dry_run

    owners: Owners | None = None
    if registry is None:
        if allow_predictable_seeds:
            raise ConfigurationError(f"{ALLOW_PREDICTABLE} has no effect without --registry")
        configuration = configured.load(deploys=True)
    else:
        configuration = configured.load_shared(allow_predictable=allow_predictable_seeds)
        owners = agreed_owners(registry, name, configuration)
    where, sender = node.chain_of(home), node.sender()
    if dry:
        outcome = dry_run(where, name, configuration, owners, sender)
        print_json(asdict(outcome)) if json else print_dry_run(outcome)
        raise typer.Exit(0 if outcome.is_affordable else WRONG)
    with (
        where.writer(sender) as chain,
        prepared(home, name, configuration, chain, where.blobs(), owners=owners) as deployed,
    ):
        _, _, manifest = deployed
        protocol = configuration.protocol
        warning = lot_warning(
            protocol.strategy, protocol.beacon, mines_at_once=chain.mines_at_once()
        )
    if warning is not None:
        complain(f"warning: {warning}")
    if json:
        print_json(asdict(manifest))
        return
    print_line(f"contract {manifest.address} on chain {manifest.chain_id}")
    print_line(f"created in block {manifest.block} by transaction {manifest.transaction}")
    print_line(f"run document {manifest.config}")
    print_line(f"manifest {Home(home).run(name).manifest}")
    if owners is None:
        print_next("go on with", resume_command(where, name, sender))
    else:
        _print_join(where, configuration, manifest)


def resume_command(where: Target, name: str, sender: Sender) -> str:
    """Return the command that resumes a run, complete and without secrets."""
    from clients.configuration.loading import code_named_in
    from clients.configuration.parsing import plain_values

    words: list[object] = ["run", "--home", where.home, "--run", name, "--resume"]
    path = Home(where.home).run(name).configuration
    named = code_named_in(plain_values(path=path)) if path.exists() else {}
    for key, code in named.items():
        words += ["--set", f"{key}={code}"]
    shown_url = ""
    if where.rpc_url is not None:
        words += ["--chain-id", where.chain_id]
        shown_url = f" --rpc-url {quoted_url(where.rpc_url)}"
    for option, value in (
        ("--keystore", sender.keystore),
        ("--password-file", sender.password_file),
        ("--confirmations", sender.confirmations),
    ):
        words += [] if value is None else [option, value]
    return f"{command_line(*words)}{shown_url}"


def _print_join(where: Target, configuration: Configuration, manifest: Manifest) -> None:
    """Print the command with which each owner continues, without its key."""
    from clients.configuration.parsing import ALLOW_PREDICTABLE
    from clients.datasets.own import OWN
    from ledger.protocol.types import Beacon

    words: list[object] = ["join", "--chain-id", manifest.chain_id]
    words += ["--contract", manifest.address, "--blobs", Home(where.home).blobs.absolute()]
    if configuration.protocol.beacon is Beacon.NONE:
        words.append(ALLOW_PREDICTABLE)
    url, values = variable_in_shell(URL_VARIABLE), {}
    if where.rpc_url is None:
        serve = command_line("chain", "serve", "--home", where.home, "--block-time", 1)
        print_line(f"serve the chain to the owners with: {serve}")
        values = {URL_VARIABLE: "the URL that it prints"}
    else:
        url = quoted_url(where.rpc_url)
    command = f"{command_line(*words)} --rpc-url {url}"
    if configuration.data.name == OWN.name or configuration.data.path is not None:
        command += f" --data {variable_in_shell(DATA_VARIABLE)}"
    print_next("each owner goes on with", command, values)
    print_line(f"its key is that of --keystore or CMFL_KEYSTORE, a file, or of {KEY_VARIABLE}")
    print_line("on another machine --blobs is the URL of a store: cmfl blobs serve --help")
